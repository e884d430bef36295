package main

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/pillarbox-dev/pillarbox/outbox"
	"github.com/pillarbox-dev/pillarbox/relay"
	"github.com/pillarbox-dev/pillarbox/store/postgres"
)

// timing is the life of one event, measured from the start of the load.
type timing struct {
	due          time.Duration // when its transaction was to begin
	sent         time.Duration // when its COMMIT was sent
	committed    time.Duration // when the COMMIT had returned
	acknowledged time.Duration // when the destination had it
}

// sortedBy returns one duration for each event, ascending.
func sortedBy(events []timing, of func(timing) time.Duration) []time.Duration {
	all := make([]time.Duration, len(events))
	for i, e := range events {
		all[i] = of(e)
	}
	slices.Sort(all)
	return all
}

// load is a run of n transactions, one every interval, against a relay that carries their events to the load itself: a null
// destination that notes when it got them. An event is known by its aggregate version.
type load struct {
	null
	pool     *pgxpool.Pool
	outbox   *outbox.Outbox
	interval time.Duration
	events   []timing

	start        time.Time
	acknowledged []atomic.Int64 // nanoseconds since start; 0: not yet
	arrived      *quota
}

// arrivalTimeout is how long after the last commit an event may arrive; later is never.
const arrivalTimeout = 30 * time.Second

// load empties the log, runs a relay and n transactions over so many connections, and returns the timings.
func (s *session) load(ctx context.Context, log *eventLog, n, producers int, interval time.Duration) ([]timing, error) {
	if err := log.empty(ctx); err != nil {
		return nil, err
	}
	store, err := postgres.Open(ctx, postgres.Config{URL: log.url})
	if err != nil {
		return nil, err
	}
	defer store.Close()
	box, err := outbox.New(outbox.Postgres, outbox.Options{})
	if err != nil {
		return nil, err
	}
	l := newLoad(log.pool, box, n, interval)
	r, err := newRelay(store, relay.DestinationConfig{Destination: l}, nil)
	if err != nil {
		return nil, err
	}
	err = s.profiled(func() error { return l.run(ctx, r, producers) })
	if err != nil {
		return nil, err
	}
	return l.timings(), nil
}

func newLoad(pool *pgxpool.Pool, box *outbox.Outbox, n int, interval time.Duration) *load {
	return &load{
		null:         null{batch: 1000},
		pool:         pool,
		outbox:       box,
		interval:     interval,
		events:       make([]timing, n),
		acknowledged: make([]atomic.Int64, n),
		arrived:      newQuota(n),
	}
}

// timings returns what was noted, when the load is over.
func (l *load) timings() []timing {
	for i := range l.events {
		l.events[i].acknowledged = time.Duration(l.acknowledged[i].Load())
	}
	return l.events
}

func (l *load) run(ctx context.Context, r *relay.Relay, producers int) error {
	l.start = time.Now()
	due := make(chan int, len(l.events)) // never full: the schedule does not wait for producers
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return runUntil(ctx, r, l.arrived) })
	group.Go(func() error { return l.schedule(ctx, due) })
	for range producers {
		group.Go(func() error { return l.produce(ctx, due) })
	}
	return group.Wait()
}

// schedule makes each transaction due at its time, and then waits for the last event to arrive.
func (l *load) schedule(ctx context.Context, due chan<- int) error {
	for i := range l.events {
		l.events[i].due = time.Duration(i) * l.interval
		select {
		case <-time.After(time.Until(l.start.Add(l.events[i].due))):
			due <- i
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	close(due)
	select {
	case <-l.arrived.reached:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(arrivalTimeout):
		return fmt.Errorf("the measurement is void: %d of %d events did not arrive within %v of the last transaction",
			l.arrived.want-l.arrived.got.Load(), l.arrived.want, arrivalTimeout)
	}
}

// produce commits the transactions that are due, on one connection.
func (l *load) produce(ctx context.Context, due <-chan int) error {
	conn, err := l.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	for i := range due {
		if err := l.commit(ctx, conn, i); err != nil {
			return fmt.Errorf("transaction %d: %w", i, err)
		}
	}
	return nil
}

func (l *load) commit(ctx context.Context, conn *pgxpool.Conn, i int) error {
	tx, err := conn.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(context.WithoutCancel(ctx)) // does nothing after the commit
	if _, err := l.outbox.Enqueue(ctx, outbox.Pgx(tx), event(i)); err != nil {
		return err
	}
	l.events[i].sent = time.Since(l.start)
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	l.events[i].committed = time.Since(l.start)
	return nil
}

func (l *load) Deliver(ctx context.Context, batch []relay.Delivery) []relay.Outcome {
	outcomes := l.null.Deliver(ctx, batch)
	now := int64(time.Since(l.start))
	for _, d := range batch {
		if l.acknowledged[d.AggregateVersion].CompareAndSwap(0, now) {
			l.arrived.add(1)
		}
	}
	return outcomes
}
