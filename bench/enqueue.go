package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/pillarbox-dev/pillarbox/outbox"
)

// enqueue measures what Enqueue costs beside a plain INSERT of the same event, in the same transaction, over the same
// connection. What both share, the transaction and its commit, is not counted: it would flatter the ratio.
type enqueue struct {
	transactions int
	report       report
}

func enqueueFlags(flags *flag.FlagSet) measurement {
	var e enqueue
	flags.IntVar(&e.transactions, "transactions", 5000, "transactions of a round, for each driver; each has one event of both kinds")
	return e.measure
}

func (e *enqueue) measure(ctx context.Context, s *session) (*report, error) {
	if e.transactions < 1 {
		return nil, errors.New("--transactions must be at least 1")
	}
	log, err := s.newLog(ctx, "enqueue", 0)
	if err != nil {
		return nil, err
	}
	defer log.pool.Close()
	box, err := outbox.New(outbox.Postgres, outbox.Options{})
	if err != nil {
		return nil, err
	}
	db := stdlib.OpenDBFromPool(log.pool)
	defer db.Close()
	for n := range s.rounds {
		s.say("round %d of %d", n+1, s.rounds)
		if err := log.empty(ctx); err != nil {
			return nil, err
		}
		if err := e.round("", func(i int) (pair, error) { return inPgx(ctx, log, box, i) }); err != nil {
			return nil, err
		}
		if err := e.round("sql_", func(i int) (pair, error) { return inSQL(ctx, db, box, i) }); err != nil {
			return nil, err
		}
		const events = "select count(*) from outbox_event"
		if err := expect(ctx, log.pool, 4*e.transactions, "events are in the log", events); err != nil {
			return nil, err
		}
	}
	e.report.want("ratio", atMost(1.2))
	e.report.want("sql_ratio", atMost(1.2))
	e.report.note("transactions", e.transactions)
	e.report.note("payload_bytes", payloadSize)
	return &e.report, nil
}

// pair is how long the two ways took in one transaction.
type pair struct{ enqueue, insert time.Duration }

// round runs the transactions and reports the medians, in microseconds.
func (e *enqueue) round(prefix string, transact func(i int) (pair, error)) error {
	var enqueues, inserts []time.Duration
	for i := range e.transactions {
		p, err := transact(i)
		if err != nil {
			return fmt.Errorf("transaction %d: %w", i, err)
		}
		enqueues, inserts = append(enqueues, p.enqueue), append(inserts, p.insert)
	}
	slices.Sort(enqueues)
	slices.Sort(inserts)
	enqueued, inserted := percentile(enqueues, 0.5), percentile(inserts, 0.5)
	e.report.add(prefix+"enqueue_us", float64(enqueued.Nanoseconds())/1000)
	e.report.add(prefix+"insert_us", float64(inserted.Nanoseconds())/1000)
	e.report.add(prefix+"ratio", float64(enqueued)/float64(inserted))
	return nil
}

// plainInsert is what a service would write by hand.
const plainInsert = `
insert into outbox_event
  (event_id, topic_name, partition_key, aggregate_type, aggregate_id, aggregate_version, event_type, event_version, schema_ref, payload)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`

func plainArgs(i int, driver string) []any {
	e := event(i)
	return []any{
		fmt.Sprintf("01935f7e-%s-7000-8000-%012x", driver, i), e.Topic, e.Key, e.AggregateType, e.AggregateID,
		e.AggregateVersion, e.Type, 1, e.SchemaRef, string(e.Payload),
	}
}

func inPgx(ctx context.Context, log *eventLog, box *outbox.Outbox, i int) (p pair, err error) {
	err = pgx.BeginFunc(ctx, log.pool, func(tx pgx.Tx) (err error) {
		args, toEnqueue := plainArgs(i, "aaaa"), event(i)
		p, err = timeBoth(i,
			func() error { _, err := box.Enqueue(ctx, outbox.Pgx(tx), toEnqueue); return err },
			func() error { _, err := tx.Exec(ctx, plainInsert, args...); return err })
		return err
	})
	return p, err
}

func inSQL(ctx context.Context, db *sql.DB, box *outbox.Outbox, i int) (p pair, err error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return p, err
	}
	args, toEnqueue := plainArgs(i, "bbbb"), event(i)
	p, err = timeBoth(i,
		func() error { _, err := box.Enqueue(ctx, tx, toEnqueue); return err },
		func() error { _, err := tx.ExecContext(ctx, plainInsert, args...); return err })
	if err != nil {
		return p, errors.Join(err, tx.Rollback())
	}
	return p, tx.Commit()
}

// timeBoth times the two ways, each of them first in every other transaction: the first statement of a transaction also
// pays for its xid.
func timeBoth(i int, enqueue, insert func() error) (p pair, err error) {
	if i%2 == 0 {
		if p.enqueue, err = timed(enqueue); err == nil {
			p.insert, err = timed(insert)
		}
		return p, err
	}
	if p.insert, err = timed(insert); err == nil {
		p.enqueue, err = timed(enqueue)
	}
	return p, err
}

func timed(work func() error) (time.Duration, error) {
	start := time.Now()
	err := work()
	return time.Since(start), err
}
