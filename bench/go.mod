module github.com/pillarbox-dev/pillarbox/bench

go 1.26.0

require (
	github.com/pillarbox-dev/pillarbox v0.0.0
	github.com/pillarbox-dev/pillarbox/outbox v0.0.0
)

replace (
	github.com/pillarbox-dev/pillarbox => ../
	github.com/pillarbox-dev/pillarbox/outbox => ../outbox
)
