package main

import (
	"context"
	"errors"
	"flag"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// drained is what a drain took: the time for so many events, and what was spent on all that were settled before it stopped.
type drained struct {
	events  int
	seconds float64
	settled int
	spent
}

func (d drained) perSecond() float64   { return float64(d.events) / d.seconds }
func (d drained) walPerEvent() float64 { return float64(d.walBytes) / float64(d.settled) }

// cpuPerEvent is in microseconds.
func (d drained) cpuPerEvent() float64 {
	return float64((d.cpu.own + d.cpu.server).Microseconds()) / float64(d.settled)
}

// drain measures how fast a full log goes to a destination that takes everything at once.
type drain struct {
	events, textbookEvents, pending int
	held                            bool
	batch                           int
	report                          report
}

func drainFlags(flags *flag.FlagSet) measurement {
	var d drain
	flags.IntVar(&d.events, "events", 1_000_000, "how many events Pillarbox drains in a round")
	flags.IntVar(&d.textbookEvents, "textbook-events", 100_000,
		"how many the textbook relays drain, at most --events; they get slower the more there are")
	flags.IntVar(&d.pending, "pending", 0, "also drain --events out of a log of so many")
	flags.BoolVar(&d.held, "held-transaction", false, "also drain while a transaction stays open that has an event in the log")
	flags.IntVar(&d.batch, "batch", 2000, "the most events that the null destination takes at once")
	return d.measure
}

func (d *drain) measure(ctx context.Context, s *session) (*report, error) {
	if d.events < 2 || d.textbookEvents < 1 || d.batch < 1 || d.pending != 0 && d.pending < d.events {
		return nil, errors.New("--events must be at least 2, --textbook-events and --batch at least 1, --pending at least --events")
	}
	d.textbookEvents = min(d.textbookEvents, d.events)
	log, err := s.newLog(ctx, "log", d.events)
	if err != nil {
		return nil, err
	}
	defer log.pool.Close()
	var pending *eventLog
	if d.pending > 0 {
		if pending, err = s.newLog(ctx, "pending", d.pending); err != nil {
			return nil, err
		}
		defer pending.pool.Close()
	}
	for n := range s.rounds {
		s.say("round %d of %d", n+1, s.rounds)
		if err := d.round(ctx, s, log, pending); err != nil {
			return nil, err
		}
	}
	d.conclude()
	return &d.report, nil
}

// round measures everything once, what is compared side by side, so that what disturbs the machine for a while hits both.
func (d *drain) round(ctx context.Context, s *session, log, pending *eventLog) error {
	plain, err := d.pillarbox(ctx, s, log, "pillarbox", relay.DestinationConfig{})
	if err != nil {
		return err
	}
	d.report.add("wal_bytes_per_event", plain.walPerEvent())
	d.report.add("relay_cpu_us_per_event", float64(plain.cpu.own.Microseconds())/float64(plain.settled))
	d.report.add("relay_peak_heap_mb", megabytes(plain.heap))
	d.report.add("relay_peak_rss_mb", megabytes(plain.resident))
	if d.held {
		if err := d.whileHeld(ctx, s, log, plain); err != nil {
			return err
		}
	}
	if pending != nil {
		full, err := d.pillarbox(ctx, s, pending, "pending", relay.DestinationConfig{})
		if err != nil {
			return err
		}
		d.reportRatio(s, "pending", full, plain)
		d.report.add("pending_peak_rss_mb", megabytes(full.resident))
	}
	if _, err := d.pillarbox(ctx, s, log, "pillarbox_no_ledger", relay.DestinationConfig{NoLedger: true}); err != nil {
		return err
	}
	for _, t := range []textbook{asWritten(), indexed()} {
		if err := d.textbook(ctx, s, log.pool, t, plain); err != nil {
			return err
		}
	}
	return nil
}

// whileHeld drains while a transaction stays open that has a number in the log.
func (d *drain) whileHeld(ctx context.Context, s *session, log *eventLog, plain carried) error {
	release, err := log.hold(ctx)
	if err != nil {
		return err
	}
	held, err := d.pillarbox(ctx, s, log, "held", relay.DestinationConfig{})
	if err := errors.Join(err, release()); err != nil {
		return err
	}
	d.reportRatio(s, "held", held, plain)
	return nil
}

// pillarbox drains the log with the real relay and checks in the database that it did.
func (d *drain) pillarbox(ctx context.Context, s *session, l *eventLog, name string, c relay.DestinationConfig) (carried, error) {
	if err := l.rewind(ctx); err != nil {
		return carried{}, err
	}
	c.Destination = &null{batch: d.batch}
	result, err := s.carry(ctx, l, c, d.events)
	if err != nil {
		return result, fmt.Errorf("%s: %w", name, err)
	}
	if err := l.expectSettled(ctx, d.events, !c.NoLedger); err != nil {
		return result, fmt.Errorf("%s: %w", name, err)
	}
	d.reportRate(s, name, result.drained)
	return result, nil
}

// textbook drains the textbook table, which stands in the same database, and leaves none behind.
func (d *drain) textbook(ctx context.Context, s *session, pool *pgxpool.Pool, t textbook, plain carried) error {
	if err := t.prepare(ctx, pool, d.textbookEvents); err != nil {
		return err
	}
	result, err := t.drain(ctx, s, pool, &null{batch: textbookBatch}, d.textbookEvents)
	if err != nil {
		return err
	}
	d.reportRate(s, t.name, result)
	d.report.add(t.name+"_wal_bytes_per_event", result.walPerEvent())
	d.report.add(t.ratio, plain.perSecond()/result.perSecond())
	if s.serverPID != 0 {
		d.report.add("cpu_"+t.ratio, result.cpuPerEvent()/plain.cpuPerEvent())
	}
	return t.drop(ctx, pool)
}

// reportRate reports the rate, and the processor time of this process and of the server, which other work on the machine
// disturbs less.
func (d *drain) reportRate(s *session, name string, result drained) {
	s.say("%s: %s events/s", name, formatNumber(result.perSecond()))
	d.report.add(name+"_per_s", result.perSecond())
	if s.serverPID != 0 {
		d.report.add(name+"_cpu_us_per_event", result.cpuPerEvent())
	}
}

// reportRatio reports how a run under a burden compares with the plain one: 1 is as good as that, less is worse.
func (d *drain) reportRatio(s *session, name string, burdened, plain carried) {
	d.report.add(name+"_ratio", burdened.perSecond()/plain.perSecond())
	if s.serverPID != 0 {
		d.report.add(name+"_cpu_ratio", plain.cpuPerEvent()/burdened.cpuPerEvent())
	}
}

func (d *drain) conclude() {
	r := &d.report
	r.want("pillarbox_per_s", atLeast(150_000))
	r.want("ratio", atLeast(15))
	r.want("wal_bytes_per_event", atMost(200))
	r.want("pending_ratio", atLeast(0.8))
	r.want("pending_peak_rss_mb", atMost(200))
	r.want("held_ratio", atLeast(0.8))
	r.note("events", d.events)
	r.note("textbook_events", d.textbookEvents)
	r.note("pending", d.pending)
	r.note("batch", d.batch)
	r.note("payload_bytes", payloadSize)
}
