module github.com/pillarbox-dev/pillarbox/bench

go 1.26.0

require (
	github.com/jackc/pgx/v5 v5.13.0
	github.com/pillarbox-dev/pillarbox v0.0.0
	github.com/pillarbox-dev/pillarbox/outbox v0.0.0
	golang.org/x/sync v0.24.0
)

require (
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/puddle/v2 v2.2.3 // indirect
	golang.org/x/text v0.42.0 // indirect
)

replace (
	github.com/pillarbox-dev/pillarbox => ../
	github.com/pillarbox-dev/pillarbox/outbox => ../outbox
)
