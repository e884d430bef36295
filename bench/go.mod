module github.com/pillarbox-dev/pillarbox/bench

go 1.26.0

require (
	github.com/jackc/pgx/v5 v5.13.0
	github.com/pillarbox-dev/pillarbox v0.0.0
	github.com/pillarbox-dev/pillarbox/outbox v0.0.0
	github.com/twmb/franz-go v1.22.3
	github.com/twmb/franz-go/pkg/kadm v1.20.0
	golang.org/x/sync v0.24.0
)

require (
	github.com/itchyny/gojq v0.12.20 // indirect
	github.com/itchyny/timefmt-go v0.1.9 // indirect
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/puddle/v2 v2.2.3 // indirect
	github.com/klauspost/compress v1.20.3 // indirect
	github.com/pierrec/lz4/v4 v4.1.33 // indirect
	github.com/twmb/franz-go/pkg/kmsg v1.15.1 // indirect
	golang.org/x/text v0.42.0 // indirect
)

replace (
	github.com/pillarbox-dev/pillarbox => ../
	github.com/pillarbox-dev/pillarbox/outbox => ../outbox
)
