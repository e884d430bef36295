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
)

// destinationName is the one destination of every run.
const destinationName = "bench"

// settleCounter is an observer that tells when enough deliveries are settled as published.
type settleCounter struct {
	relay.Unobserved
	want      int64
	published atomic.Int64
	enough    chan struct{} // closed when want is reached
	at        time.Time     // when that was; valid once enough is closed
}

func newSettleCounter(want int) *settleCounter {
	return &settleCounter{want: int64(want), enough: make(chan struct{})}
}

func (c *settleCounter) Settled(_ string, s relay.SettleReport) {
	after := c.published.Add(int64(s.Published))
	if after >= c.want && after-int64(s.Published) < c.want {
		c.at = time.Now()
		close(c.enough)
	}
}

// carried is what a run of the relay took.
type carried struct {
	drained
	peaks
}

// carry runs the real relay with one destination over the log until n deliveries are settled, and stops it cleanly. The clock
// runs from before the lease is taken to the settle that reached n.
func carry(ctx context.Context, l *eventLog, d relay.DestinationConfig, n int) (c carried, err error) {
	store, closeStore, err := openStore(ctx, l.pool)
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, closeStore()) }()
	counter := newSettleCounter(n)
	r, err := newRelay(store, d, counter)
	if err != nil {
		return c, err
	}
	walBefore, err := walPosition(ctx, l.pool)
	if err != nil {
		return c, err
	}
	watch, err := watchMemory()
	if err != nil {
		return c, err
	}
	start := time.Now()
	err = runUntil(ctx, r, counter.enough)
	peaks, watchErr := watch.finish()
	if err := errors.Join(err, watchErr); err != nil {
		return c, err
	}
	walAfter, err := walPosition(ctx, l.pool)
	if err != nil {
		return c, err
	}
	// What was settled between the n-th and the stop has written WAL too.
	settled := counter.published.Load()
	return carried{
		drained: drained{events: n, seconds: counter.at.Sub(start).Seconds(), walBytes: (walAfter - walBefore) * int64(n) / settled},
		peaks:   peaks,
	}, nil
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

// runUntil runs a relay until done is closed, or until it ends by itself, which is an error.
func runUntil(ctx context.Context, r *relay.Relay, done <-chan struct{}) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	select {
	case <-done:
		cancel()
		return <-ended
	case err := <-ended:
		return fmt.Errorf("the relay ended before the measurement did: %w", errors.Join(err, context.Cause(ctx)))
	}
}
