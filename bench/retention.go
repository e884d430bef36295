package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/stdlib"
	"golang.org/x/sync/errgroup"

	"github.com/pillarbox-dev/pillarbox/ops"
	"github.com/pillarbox-dev/pillarbox/outbox"
	"github.com/pillarbox-dev/pillarbox/outbox/schema"
	"github.com/pillarbox-dev/pillarbox/relay"
	"github.com/pillarbox-dev/pillarbox/store/postgres"
)

// retention measures what deleting old events takes from the transactions of producers that run at the same time.
//
// One load runs through all phases, one without retention and one with it by turns, so that what the machine and the server do
// besides falls on both. A transaction belongs to the phase that it was due in; its latency runs from then to its commit. What is due
// before the first round, for as long as a phase without retention, counts for neither.
//
// The server that is started has all the files of its WAL from the beginning, as one has that has run for a while: see readyWAL.
type retention struct {
	events    int
	rate      float64
	producers int
	phase     time.Duration
	alone     time.Duration
	chunk     int
	pause     time.Duration
	report    report
}

// walPerTransaction is what a transaction and the deleting that goes on meanwhile write, in bytes, and a little more.
const walPerTransaction = 4_000

func retentionFlags(flags *flag.FlagSet) measurement {
	var r retention
	flags.IntVar(&r.events, "events", 5_000_000, "how many old events there are, each with its row in the ledger")
	flags.Float64Var(&r.rate, "rate", 1000, "transactions per second, of one event each")
	flags.IntVar(&r.producers, "producers", 16, "connections that the transactions are spread over")
	flags.DurationVar(&r.phase, "phase", time.Minute, "how long a phase with retention takes; a round is one without and one with it")
	flags.DurationVar(&r.alone, "alone", 0, "how long a phase without it takes; 0: as long")
	flags.IntVar(&r.chunk, "chunk", 0, "events that are deleted in one transaction; 0: the default")
	flags.DurationVar(&r.pause, "pause", 0, "the rest between two of them; 0: the default")
	return r.measure
}

func (r *retention) measure(ctx context.Context, s *session) (*report, error) {
	if r.alone == 0 {
		r.alone = r.phase
	}
	perPhase, perAlone := int(r.rate*r.phase.Seconds()), int(r.rate*r.alone.Seconds())
	perRound := perAlone + perPhase
	if r.events < 1 || perPhase < 100 || perAlone < 100 || r.producers < 1 || r.producers > maxConns || r.chunk < 0 {
		return nil, errors.New("--events must be at least 1, --rate times --phase and --alone give at least 100 transactions, --producers be 1 to 64, " +
			"and --chunk not be negative")
	}
	transactions := perAlone + s.rounds*perRound
	if err := s.readyWAL(ctx, transactions*walPerTransaction); err != nil {
		return nil, err
	}
	log, err := r.oldLog(ctx, s)
	if err != nil {
		return nil, err
	}
	defer log.pool.Close()
	run := &retentionRun{retention: r, session: s, log: log}
	if err := run.run(ctx, transactions); err != nil {
		return nil, err
	}
	var without, with []timing
	for n := range s.rounds {
		first := perAlone + n*perRound
		alone, beside := run.events[first:first+perAlone], run.events[first+perAlone:first+perRound]
		r.addRound(alone, beside)
		without, with = append(without, alone...), append(with, beside...)
	}
	r.addWhole(without, with)
	r.report.add("deleted", float64(run.deleted))
	r.report.add("deleted_per_s", float64(run.deleted)/run.busy.Seconds())
	r.report.want("p99_ratio", atMost(1.10))
	r.report.want("whole_p99_ratio", atMost(1.10))
	r.report.note("events", r.events)
	r.report.note("rate", r.rate)
	r.report.note("producers", r.producers)
	r.report.note("phase_seconds", r.phase.Seconds())
	r.report.note("alone_seconds", r.alone.Seconds())
	r.report.note("finished", run.finished)
	return &r.report, nil
}

// oldLog makes a log whose events are 60 days old and published.
func (r *retention) oldLog(ctx context.Context, s *session) (*eventLog, error) {
	log, err := s.newLog(ctx, "retention", 0)
	if err != nil {
		return nil, err
	}
	s.say("fill a log and a ledger with %s old events", formatNumber(float64(r.events)))
	const (
		old     = "alter table outbox_event alter column created_at set default clock_timestamp() - interval '60 days'"
		current = "alter table outbox_event alter column created_at set default clock_timestamp()"
		ledger  = `
insert into outbox_delivery (destination, seq, status, attempt_count, published_at, last_attempt_at, receipt)
select $1, seq, 'PUBLISHED', 1, created_at, created_at, '0@' || seq from outbox_event order by seq`
		cursor = `
insert into outbox_cursor (destination, position, in_flight_to) select $1, last_value, last_value from outbox_event_seq`
	)
	_, err = log.pool.Exec(ctx, old)
	if err == nil {
		err = fill(ctx, log.pool, "outbox_event", 0, r.events)
	}
	for _, sql := range []string{ledger, cursor} {
		if err == nil {
			_, err = log.pool.Exec(ctx, sql, destinationName)
		}
	}
	if err == nil {
		_, err = log.pool.Exec(ctx, current)
	}
	if err == nil {
		err = tidy(ctx, log.pool, "outbox_delivery")
	}
	if err != nil {
		log.pool.Close()
		return nil, fmt.Errorf("fill the log: %w", err)
	}
	return log, nil
}

// sinceDue is the latency that a transaction is judged by.
func sinceDue(t timing) time.Duration { return t.committed - t.due }

// addWhole reports the phases of all rounds as if they were two.
func (r *retention) addWhole(without, with []timing) {
	alone, beside := percentile(sortedBy(without, sinceDue), 0.99), percentile(sortedBy(with, sinceDue), 0.99)
	r.report.add("whole_p99_without_ms", milliseconds(alone))
	r.report.add("whole_p99_with_ms", milliseconds(beside))
	r.report.add("whole_p99_ratio", beside.Seconds()/alone.Seconds())
}

func (r *retention) addRound(without, with []timing) {
	alone, beside := sortedBy(without, sinceDue), sortedBy(with, sinceDue)
	p99, p99Beside := percentile(alone, 0.99), percentile(beside, 0.99)
	r.report.add("p50_without_ms", milliseconds(percentile(alone, 0.50)))
	r.report.add("p50_with_ms", milliseconds(percentile(beside, 0.50)))
	r.report.add("p99_without_ms", milliseconds(p99))
	r.report.add("p99_with_ms", milliseconds(p99Beside))
	r.report.add("p99_ratio", p99Beside.Seconds()/p99.Seconds())
	r.report.add("max_without_ms", milliseconds(percentile(alone, 1)))
	r.report.add("max_with_ms", milliseconds(percentile(beside, 1)))
}

// retentionRun is one load with retention beside it, by turns.
type retentionRun struct {
	*retention
	*session
	log      *eventLog
	events   []timing
	deleted  int64
	finished bool
	busy     time.Duration // how long retention has worked
}

func (r *retentionRun) run(ctx context.Context, n int) error {
	store, err := postgres.Open(ctx, postgres.Config{URL: r.log.url})
	if err != nil {
		return err
	}
	defer store.Close()
	box, err := outbox.New(outbox.Postgres, outbox.Options{})
	if err != nil {
		return err
	}
	l := newLoad(r.log.pool, box, n, time.Duration(float64(time.Second)/r.rate))
	carrier, err := newRelay(store, relay.DestinationConfig{Destination: l}, nil)
	if err != nil {
		return err
	}
	r.say("%d rounds: %g transactions per second for %v without retention, and for %v with it", r.rounds, r.rate, r.alone, r.phase)
	group, ctx := errgroup.WithContext(ctx)
	start := time.Now()
	group.Go(func() error { return l.run(ctx, carrier, r.producers) })
	group.Go(func() error { return r.retain(ctx, start.Add(r.alone)) })
	if err := group.Wait(); err != nil {
		return err
	}
	r.events = l.timings()
	return nil
}

// retain runs retention in the second phase of each round.
func (r *retentionRun) retain(ctx context.Context, start time.Time) error {
	db := stdlib.OpenDBFromPool(r.log.pool)
	defer db.Close()
	o, err := ops.New(db, schema.Postgres, "public")
	if err != nil {
		return err
	}
	config := ops.RetentionConfig{Rules: []ops.RetentionRule{{After: 30 * 24 * time.Hour}}, Chunk: r.chunk, Pause: r.pause}
	const left = "select count(*) from outbox_event where seq <= $1"
	for n := range r.rounds {
		end := start.Add(time.Duration(n+1) * (r.alone + r.phase))
		select {
		case <-time.After(time.Until(end.Add(-r.phase))):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		began := time.Now()
		working, stop := context.WithDeadline(ctx, end)
		err := o.RetentionTask(time.Hour, config, nil).Run(working)
		stop()
		r.busy += time.Since(began)
		r.finished = err == nil
		if r.finished && n < r.rounds-1 {
			return fmt.Errorf("the measurement is void: everything was deleted in round %d of %d: take more --events, or a shorter --phase",
				n+1, r.rounds)
		}
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
	}
	var still int64
	if err := r.log.pool.QueryRow(ctx, left, r.retention.events).Scan(&still); err != nil {
		return fmt.Errorf("count what is left: %w", err)
	}
	r.deleted = int64(r.retention.events) - still
	return nil
}
