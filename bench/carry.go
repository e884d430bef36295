package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/pillarbox-dev/pillarbox/relay"
	"github.com/pillarbox-dev/pillarbox/store/postgres"
)

// destinationName is the one destination of every run.
const destinationName = "bench"

// quota is so many things that are to happen; it notes when they have.
type quota struct {
	want    int64
	got     atomic.Int64
	reached chan struct{} // closed when that is so
	at      time.Time     // when it was; valid once reached is closed
}

func newQuota(want int) *quota { return &quota{want: int64(want), reached: make(chan struct{})} }

func (q *quota) add(n int) {
	if after := q.got.Add(int64(n)); after >= q.want && after-int64(n) < q.want {
		q.at = time.Now()
		close(q.reached)
	}
}

// settleCounter is an observer that counts the deliveries that are settled as published.
type settleCounter struct {
	relay.Unobserved
	*quota
}

func (c settleCounter) Settled(_ string, s relay.SettleReport) { c.add(s.Published) }

// carried is what a run of the relay took.
type carried struct {
	drained
	peaks
}

// carry runs the real relay with one destination over the log until n deliveries are settled, and stops it cleanly. The clock
// runs from before the lease is taken to the settle that reached n.
func (s *session) carry(ctx context.Context, l *eventLog, config relay.DestinationConfig, n int) (c carried, err error) {
	store, err := postgres.Open(ctx, postgres.Config{URL: l.url})
	if err != nil {
		return c, err
	}
	defer store.Close()
	settled := newQuota(n)
	r, err := newRelay(store, config, settleCounter{quota: settled})
	if err != nil {
		return c, err
	}
	meter, err := s.startMeter(ctx, l.pool)
	if err != nil {
		return c, err
	}
	watch, err := watchMemory()
	if err != nil {
		return c, err
	}
	start := time.Now()
	runErr := s.profiled(func() error { return runUntil(ctx, r, settled) })
	c.peaks, err = watch.finish()
	if err := errors.Join(runErr, err); err != nil {
		return c, err
	}
	c.seconds, c.events = settled.at.Sub(start).Seconds(), n
	c.settled = int(settled.got.Load()) // what was settled between the n-th and the stop has cost something too
	c.spent, err = meter.stop(ctx)
	return c, err
}

func newRelay(store relay.Store, d relay.DestinationConfig, o relay.Observer) (*relay.Relay, error) {
	d.Name = destinationName
	return relay.New(relay.Config{
		Store:        store,
		Owner:        fmt.Sprintf("bench-%d", os.Getpid()),
		Destinations: []relay.DestinationConfig{d},
		Observer:     o,
		Logger:       slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
}

// runUntil runs a relay until the quota is reached and stops it cleanly. A relay that ends by itself is an error.
func runUntil(ctx context.Context, r *relay.Relay, until *quota) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	select {
	case <-until.reached:
		cancel()
		return <-ended
	case err := <-ended:
		return fmt.Errorf("the relay ended before the measurement did: %w", errors.Join(err, context.Cause(ctx)))
	}
}
