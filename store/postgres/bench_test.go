package postgres_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pillarbox-dev/pillarbox/relay"
	"github.com/pillarbox-dev/pillarbox/store/postgres"
)

// fillLog writes n events with a payload of 420 bytes, as a registry of cases would.
const fillLog = `
insert into outbox_event (event_id, topic_name, partition_key, aggregate_type, aggregate_id, aggregate_version, event_type,
       schema_ref, payload)
select gen_random_uuid()::text, 'reg.case.lifecycle', 'CASE-' || i % 5000, 'case', 'CASE-' || i % 5000, i / 5000, 'CaseAccepted',
       'reg.case.lifecycle.CaseAccepted.v1',
       ('{"case":"' || i || '","text":"' || repeat('x', 397 - length(i::text)) || '"}')::json
  from generate_series(1, $1::integer) i`

func BenchmarkRead(b *testing.B) {
	const events = 200_000
	url := database(b)
	exec(b, connect(b, url), fillLog, events)
	exec(b, connect(b, url), "vacuum analyze outbox_event")
	store := open(b, postgres.Config{URL: url})
	thousand := make([]relay.Range, 1000)
	for i := range thousand {
		thousand[i] = relay.Range{First: -int64(5000 - 2*i), Last: -int64(5000 - 2*i)}
	}
	for _, bench := range []struct {
		name  string
		query relay.Query
	}{
		{"1000 rows", relay.Query{Limit: 1000}},
		{"5000 rows", relay.Query{Limit: 5000}},
		{"5000 rows of wanted topics", relay.Query{Limit: 5000, Topics: relay.Topics{"reg.*"}}},
		{"5000 rows of unwanted topics", relay.Query{Limit: 5000, Topics: relay.Topics{"ops.*", "audit.*"}}},
		{"5000 rows and 1000 gaps", relay.Query{Limit: 5000, Gaps: thousand}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			q := bench.query
			q.MaxBytes = 64 << 20
			rows := 0
			for b.Loop() {
				page, err := store.Read(context.Background(), q)
				if err != nil {
					b.Fatal(err)
				}
				rows += len(page.Seqs)
				if q.After += int64(len(page.Seqs)); len(page.Seqs) == 0 {
					q.After = 0
				}
			}
			b.ReportMetric(float64(rows)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}

func BenchmarkSettle(b *testing.B) {
	for _, size := range []int{0, 1, 10, 64, 127, 128, 500, 1000, 5000} {
		b.Run(fmt.Sprint(size, " published"), func(b *testing.B) { benchmarkSettle(b, size, 0) })
	}
	for _, size := range []int{1, 1000} {
		b.Run(fmt.Sprint(size, " failed"), func(b *testing.B) { benchmarkSettle(b, 0, size) })
	}
}

func benchmarkSettle(b *testing.B, published, failed int) {
	ctx := context.Background()
	url := database(b)
	conn := connect(b, url)
	// Another destination's rows lie on both sides in the index, as they do where there are several.
	exec(b, conn, `insert into outbox_delivery (destination, seq, status)
		select name, i, 'PUBLISHED' from unnest(array['aaa', 'zzz']) name, generate_series(1, 1000) i`)
	store := open(b, postgres.Config{URL: url})
	lease, _, err := store.Acquire(ctx, relay.AcquireRequest{Destination: "suppliers", Owner: "relay-1", TTL: time.Hour})
	if err != nil {
		b.Fatal(err)
	}
	s := relay.Settlement{Published: make([]relay.Receipt, published), Rows: make([]relay.Row, failed)}
	rows := 0
	before := walPosition(b, conn)
	for b.Loop() {
		for i := range s.Published {
			s.Position++
			s.Published[i] = relay.Receipt{Seq: s.Position, Receipt: fmt.Sprintf("3@%d", s.Position)}
		}
		for i := range s.Rows {
			s.Position++
			s.Rows[i] = relay.Row{Seq: s.Position, Status: relay.StatusFailed, Attempts: 1, Attempted: true, Endpoint: "acme",
				Key: "CASE-1", OpenLane: true, Due: true, NextIn: time.Minute,
				ErrorCode: "HTTP_503", ErrorMessage: "503 Service Unavailable"}
		}
		s.InFlightTo = s.Position + 5000
		if _, err := store.Settle(ctx, lease.LeaseID, s); err != nil {
			b.Fatal(err)
		}
		rows += len(s.Published) + len(s.Rows)
	}
	wal := float64(walPosition(b, conn) - before)
	if rows > 0 {
		b.ReportMetric(float64(rows)/b.Elapsed().Seconds(), "rows/s")
		b.ReportMetric(wal/float64(rows), "walB/row")
	}
	b.ReportMetric(wal/float64(b.N), "walB/op")
}

func walPosition(b *testing.B, conn *pgx.Conn) (lsn int64) {
	b.Helper()
	err := conn.QueryRow(context.Background(), "select (pg_current_wal_insert_lsn() - '0/0')::bigint").Scan(&lsn)
	if err != nil {
		b.Fatal(err)
	}
	return lsn
}
