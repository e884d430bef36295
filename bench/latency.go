package main

import (
	"context"
	"errors"
	"flag"
	"time"
)

// latency measures how long an event takes from its commit to the destination's acknowledgement, at a steady rate, and when
// events come so seldom that the relay sleeps in between.
//
// The load is open: transaction i is due at i / rate, whatever became of those before it, so that a stall is paid for by all
// that were due meanwhile. Producers and relay are one process with one monotonic clock.
type latency struct {
	rate, seconds, warmUp float64
	producers             int
	wakeEvents            int
	wakeEvery             time.Duration
	report                report
}

func latencyFlags(flags *flag.FlagSet) measurement {
	var l latency
	flags.Float64Var(&l.rate, "rate", 1000, "transactions per second, of one event each")
	flags.Float64Var(&l.seconds, "seconds", 20, "how long a round takes")
	flags.Float64Var(&l.warmUp, "warm-up", 2, "seconds before that, which are not counted")
	flags.IntVar(&l.producers, "producers", 16, "connections that the transactions are spread over")
	flags.IntVar(&l.wakeEvents, "wake-events", 5, "in each round, also so many single events for a sleeping relay")
	flags.DurationVar(&l.wakeEvery, "wake-every", 2*time.Second, "the time between these")
	return l.measure
}

func (l *latency) measure(ctx context.Context, s *session) (*report, error) {
	counted := int(l.rate * l.seconds)
	if counted < 1 || l.warmUp < 0 || l.producers < 1 || l.producers > maxConns || l.wakeEvents < 0 || l.wakeEvery <= 0 {
		return nil, errors.New("--rate times --seconds must give at least one event, --producers 1 to 64, --wake-every more than 0; " +
			"nothing may be negative")
	}
	log, err := s.newLog(ctx, "latency", 0)
	if err != nil {
		return nil, err
	}
	defer log.pool.Close()
	for n := range s.rounds {
		s.say("round %d of %d: %g transactions per second for %g s", n+1, s.rounds, l.rate, l.warmUp+l.seconds)
		before := int(l.rate * l.warmUp)
		steady, err := s.load(ctx, log, before+counted, l.producers, time.Duration(float64(time.Second)/l.rate))
		if err != nil {
			return nil, err
		}
		l.addSteady(steady[before:])
		if l.wakeEvents == 0 {
			continue
		}
		s.say("round %d of %d: one event every %v, %d times", n+1, s.rounds, l.wakeEvery, l.wakeEvents)
		single, err := s.load(ctx, log, l.wakeEvents+1, 1, l.wakeEvery)
		if err != nil {
			return nil, err
		}
		l.addWake(single[1:]) // before the first, the relay had not fallen asleep
	}
	l.report.want("p50_ms", atMost(3))
	l.report.want("p99_ms", atMost(10))
	l.report.note("rate", l.rate)
	l.report.note("seconds", l.seconds)
	l.report.note("producers", l.producers)
	l.report.note("wake_every_seconds", l.wakeEvery.Seconds())
	return &l.report, nil
}

func (l *latency) addSteady(events []timing) {
	fromCommit := sortedBy(events, func(t timing) time.Duration { return t.acknowledged - t.committed })
	fromDue := sortedBy(events, func(t timing) time.Duration { return t.acknowledged - t.due })
	commit := sortedBy(events, func(t timing) time.Duration { return t.committed - t.sent })
	r := &l.report
	r.add("p50_ms", milliseconds(percentile(fromCommit, 0.50)))
	r.add("p99_ms", milliseconds(percentile(fromCommit, 0.99)))
	r.add("max_ms", milliseconds(percentile(fromCommit, 1)))
	r.add("due_p50_ms", milliseconds(percentile(fromDue, 0.50)))
	r.add("due_p99_ms", milliseconds(percentile(fromDue, 0.99)))
	r.add("due_max_ms", milliseconds(percentile(fromDue, 1)))
	r.add("commit_p50_ms", milliseconds(percentile(commit, 0.50)))
	r.add("commit_p99_ms", milliseconds(percentile(commit, 0.99)))
}

func (l *latency) addWake(events []timing) {
	fromCommit := sortedBy(events, func(t timing) time.Duration { return t.acknowledged - t.committed })
	l.report.add("wake_p50_ms", milliseconds(percentile(fromCommit, 0.50)))
	l.report.add("wake_max_ms", milliseconds(percentile(fromCommit, 1)))
}
