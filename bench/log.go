package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/pillarbox-dev/pillarbox/outbox"
	"github.com/pillarbox-dev/pillarbox/outbox/schema"
)

// The events of every benchmark: a JSON payload of payloadSize bytes, and keys of so many aggregates in no order that
// batches could profit from.
const (
	payloadSize = 420
	aggregates  = 10_000
	topic       = "bench.case"
	eventType   = "CaseAccepted"
	schemaRef   = "bench.case.CaseAccepted.v1"
)

// payloadParts returns what stands before and behind the event's number, digits wide, in the payload.
func payloadParts() (before, behind string) {
	const (
		head = `{"caseId":"CASE-`
		mid  = `","status":"ACCEPTED","amount":"1250.00","currency":"EUR","supplier":{"id":"SUP-0042","country":"NL"},"remarks":"`
		tail = `"}`
	)
	filler := payloadSize - len(head) - digits - len(mid) - len(tail)
	return head, mid + strings.Repeat("x", filler) + tail
}

const digits = 12

// payload is the payload of event i, the same that fill makes inside the database.
func payload(i int) []byte {
	before, behind := payloadParts()
	return fmt.Appendf(nil, "%s%0*d%s", before, digits, i, behind)
}

// event is event i as a service would enqueue it.
func event(i int) outbox.Event {
	key := "case-" + strconv.Itoa(i*7919%aggregates)
	return outbox.Event{
		Topic: topic, Key: key, AggregateType: "Case", AggregateID: key, AggregateVersion: int64(i),
		Type: eventType, SchemaRef: schemaRef, Payload: payload(i),
	}
}

// fillRows appends events from number first+1 to first+n. What varies is made by the server, so that filling costs this process no
// memory; ids are as long as a UUID. Each chunk is a transaction.
const fillRows = `
insert into {table}
  (event_id, topic_name, partition_key, aggregate_type, aggregate_id, aggregate_version, event_type, schema_ref, payload)
select '01935f7e-0000-7000-8000-' || lpad(to_hex(i), 12, '0'), $3,
       'case-' || abs(hashint8(i)::bigint) % $4, 'Case', 'case-' || abs(hashint8(i)::bigint) % $4, i, $5, $6,
       ($7 || lpad(i::text, $8, '0') || $9)::json
from generate_series($1::bigint, $2::bigint) i`

const fillChunk = 250_000

// maxConns bounds the benchmark's own connections: producers, mostly.
const maxConns = 64

// eventLog is a database with the tables of Pillarbox and a filled log.
type eventLog struct {
	url  string
	pool *pgxpool.Pool
	hole int64 // a number in the log that was rolled back
}

// newLog makes a database with n events. One number near the beginning is missing, as if its transaction had rolled back.
func (s *session) newLog(ctx context.Context, purpose string, n int) (*eventLog, error) {
	url, err := s.createDatabase(ctx, purpose)
	if err != nil {
		return nil, err
	}
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	config.MaxConns = maxConns
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	db := stdlib.OpenDBFromPool(pool)
	defer db.Close()
	if _, err := schema.Migrate(ctx, db, schema.Postgres, "public"); err != nil {
		return nil, err
	}
	l := &eventLog{url: url, pool: pool}
	if n == 0 {
		return l, nil
	}
	s.say("fill a log with %s events", formatNumber(float64(n)))
	if err := fill(ctx, pool, "outbox_event", 0, n+1); err != nil {
		return nil, err
	}
	const makeHole = `
delete from outbox_event where seq = (select seq from outbox_event order by seq offset $1 limit 1) returning seq`
	if err := pool.QueryRow(ctx, makeHole, min(1000, n/2)).Scan(&l.hole); err != nil {
		return nil, fmt.Errorf("make a hole in the log: %w", err)
	}
	return l, tidy(ctx, pool, "outbox_event")
}

// rewind sets the log back to where no relay has ever read it.
func (l *eventLog) rewind(ctx context.Context) error {
	if _, err := l.pool.Exec(ctx, "truncate outbox_delivery, outbox_cursor"); err != nil {
		return fmt.Errorf("rewind the log: %w", err)
	}
	return tidy(ctx, l.pool, "outbox_event")
}

// empty sets the log back to where it was made.
func (l *eventLog) empty(ctx context.Context) error {
	const sql = "truncate outbox_event, outbox_delivery, outbox_cursor; alter sequence outbox_event_seq restart"
	if _, err := l.pool.Exec(ctx, sql); err != nil {
		return fmt.Errorf("empty the log: %w", err)
	}
	return tidy(ctx, l.pool, "outbox_event")
}

// expectSettled checks what a drain left behind: the cursor has passed at least n events and, with the ledger, each has its
// row and receipt.
func (l *eventLog) expectSettled(ctx context.Context, n int, ledger bool) error {
	const (
		passed = `
select count(*) from outbox_event e join outbox_cursor c on e.seq <= c.position and not c.gaps @> e.seq
where c.destination = $1`
		recorded = `
select count(*) from outbox_delivery
where destination = $1 and status = 'PUBLISHED' and published_at is not null and receipt is not null`
	)
	if ledger {
		return expect(ctx, l.pool, n, "deliveries are recorded as PUBLISHED", recorded, destinationName)
	}
	return expect(ctx, l.pool, n, "events are behind the cursor", passed, destinationName)
}

// expect counts in the database: a drain that did not do its work has no speed.
func expect(ctx context.Context, pool *pgxpool.Pool, atLeast int, what, sql string, args ...any) error {
	var got int
	if err := pool.QueryRow(ctx, sql, args...).Scan(&got); err != nil {
		return fmt.Errorf("count what was done: %w", err)
	}
	if got < atLeast {
		return fmt.Errorf("the measurement is void: %d %s, want %d", got, what, atLeast)
	}
	return nil
}

// hold opens a transaction that has inserted the event of the hole, with a snapshot of its own, and leaves it open until
// release, which rolls it back.
func (l *eventLog) hold(ctx context.Context) (release func() error, err error) {
	tx, err := l.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		return nil, err
	}
	release = func() error { return tx.Rollback(context.WithoutCancel(ctx)) }
	_, err = tx.Exec(ctx, "insert into outbox_event (seq, topic_name, event_type, payload) values ($1, $2, $3, $4::text::json)",
		l.hole, topic, eventType, string(payload(0)))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("hold a transaction open: %w", err), release())
	}
	return release, nil
}

// fill appends n events to a table that has the columns of an event, and leaves the table as one that has
// been in use: vacuumed, with statistics, its pages written.
func fill(ctx context.Context, pool *pgxpool.Pool, table string, first, n int) error {
	statement := strings.Replace(fillRows, "{table}", table, 1)
	before, behind := payloadParts()
	for from := first; from < first+n; from += fillChunk {
		to := min(from+fillChunk, first+n)
		_, err := pool.Exec(ctx, statement, from+1, to, topic, aggregates, eventType, schemaRef, before, digits, behind)
		if err != nil {
			return fmt.Errorf("fill %s: %w", table, err)
		}
	}
	return tidy(ctx, pool, table)
}

// tidy vacuums a table and writes the server's dirty pages, so that a measurement does not pay for what came before it.
func tidy(ctx context.Context, pool *pgxpool.Pool, table string) error {
	for _, sql := range []string{"vacuum (analyze) " + table, "checkpoint"} {
		if _, err := pool.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}
