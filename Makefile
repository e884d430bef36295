# What a contributor does. PostgreSQL, Node.js, Java and Maven must be installed; .ci/run shows how on Debian.

.PHONY: build test race sim fuzz bench lint demo

build: ## bin/pillarbox
	go build -o bin/pillarbox ./cmd/pillarbox

test: ## every test of every module, against real PostgreSQL, SQLite, Kafka, HTTP and Node.js
	go test -timeout 20m ./... ./outbox/... ./bench/...

race: ## the same with the race detector
	go test -race ./... ./outbox/...

sim: ## the simulation of the relay, longer than `make test` runs it
	go test ./relay/relaytest -run Simulation -runs 20000

fuzz: ## ten minutes over everything that has a fuzz test
	.ci/fuzz 10m

bench: ## the figures of docs/benchmarks.md
	go run ./bench drain && go run ./bench latency && go run ./bench http && go run ./bench blackhole && go run ./bench enqueue && go run ./bench kafka

lint: ## go vet, and golangci-lint with .golangci.yml
	go vet ./... ./outbox/... ./bench/... && golangci-lint run ./... ./outbox/... ./bench/...

demo: ## the whole story in fifteen seconds
	go run ./cmd/pillarbox demo --duration 15s
