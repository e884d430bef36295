package outboxtest

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pillarbox-dev/pillarbox/internal/pgtest"
	"github.com/pillarbox-dev/pillarbox/outbox"
	"github.com/pillarbox-dev/pillarbox/outbox/inbox"
)

// BenchmarkEnqueue compares Enqueue with an INSERT written by hand, each in a transaction with one business row. The target is
// 1.2 times at most. ("go run ./bench enqueue" measures the same with rounds and medians.)
func BenchmarkEnqueue(b *testing.B) {
	payload := `{"caseId":"CASE-1","items":[` + strings.Repeat(`{"sku":"ABC-1","qty":12,"price":"1.20"},`, 9) + `{}]}`
	url := pgtest.Database(b)
	on := onPostgres(b, url)
	run(b, on.db, "create table business (id bigint generated always as identity primary key, note text)")
	pool, err := pgxpool.New(b.Context(), url)
	must(b, err)
	b.Cleanup(pool.Close)
	e := outbox.Event{Topic: "cases", Key: "CASE-1", AggregateType: "case", AggregateID: "CASE-1", AggregateVersion: 4,
		Type: "CaseAccepted", SchemaRef: "reg.case.lifecycle.CaseAccepted.v1", Payload: []byte(payload)}
	byHand := "insert into " + on.event + ` (event_id, topic_name, partition_key, aggregate_type, aggregate_id, aggregate_version,
		event_type, event_version, schema_ref, payload) values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`
	n := 0
	for _, c := range []struct {
		name  string
		write func(ctx context.Context, tx pgx.Tx) error
	}{
		{"by hand", func(ctx context.Context, tx pgx.Tx) error {
			n++
			_, err := tx.Exec(ctx, byHand, fmt.Sprintf("01935f7e-0000-7000-8000-%012x", n), e.Topic, e.Key, e.AggregateType, e.AggregateID,
				e.AggregateVersion, e.Type, 1, e.SchemaRef, string(e.Payload))
			return err
		}},
		{"Enqueue", func(ctx context.Context, tx pgx.Tx) error {
			_, err := on.box.Enqueue(ctx, outbox.Pgx(tx), e)
			return err
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				must(b, pgx.BeginFunc(b.Context(), pool, func(tx pgx.Tx) error {
					if _, err := tx.Exec(b.Context(), "insert into business (note) values ('x')"); err != nil {
						return err
					}
					return c.write(b.Context(), tx)
				}))
			}
		})
	}
}

// BenchmarkInbox is what the inbox costs a consumer, for one event in a transaction and for a batch: the first time, and again.
func BenchmarkInbox(b *testing.B) {
	for _, on := range []struct {
		name    string
		backend func() backend
	}{
		{"PostgreSQL", func() backend { return onPostgres(b, pgtest.Database(b)) }},
		{"SQLite", func() backend { return onSQLite(b) }},
	} {
		for _, size := range []int{1, 100} {
			for _, what := range []string{"first", "again"} {
				b.Run(fmt.Sprintf("%s/%d/%s", on.name, size, what), func(b *testing.B) {
					benchmarkInbox(b, on.backend(), size, what == "again")
				})
			}
		}
	}
}

func benchmarkInbox(b *testing.B, on backend, size int, again bool) {
	in, n := newInbox(b, on, 0), 0
	batch := make([]inbox.Event, size)
	fill := func() {
		for i := range batch {
			n++
			batch[i] = inbox.Event{ID: fmt.Sprintf("01935f7e-0000-7000-8000-%012x", n), Body: []byte(`{"caseId":"CASE-1"}`)}
		}
	}
	handle := func() {
		tx, err := on.db.BeginTx(b.Context(), nil)
		must(b, err)
		_, err = in.FirstOf(b.Context(), tx, "c", batch...)
		must(b, err)
		must(b, tx.Commit())
	}
	fill()
	handle()
	for b.Loop() {
		if !again {
			fill()
		}
		handle()
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*size), "µs/event")
}
