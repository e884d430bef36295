package relay_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/relay"
	"github.com/pillarbox-dev/pillarbox/relay/relaytest"
)

// slowSettles is a store whose settles take a while.
type slowSettles struct {
	*relaytest.Memory
	settles atomic.Int64
}

func (s *slowSettles) Settle(ctx context.Context, l relay.LeaseID, settlement relay.Settlement) (relay.Settled, error) {
	s.settles.Add(1)
	time.Sleep(5 * time.Millisecond)
	return s.Memory.Settle(ctx, l, settlement)
}

// What was read ahead and not handed out is left to the next owner: a clean stop must not try to reserve it.
func TestRelayStopsAtOnceWithEventsReadAhead(t *testing.T) {
	bubble(t, func(h *harness) {
		h.dest.takes = time.Second
		for i := range 100 {
			h.commit("k", fmt.Sprint("e", i))
		}
		store := &slowSettles{Memory: h.store}
		r, err := relay.New(relay.Config{Store: store, Owner: "relay", Logger: slog.New(slog.DiscardHandler),
			Destinations: []relay.DestinationConfig{{Name: "d", Destination: h.dest}}})
		if err != nil {
			h.t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(h.t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		h.wait(500 * time.Millisecond)
		cancel()
		stopped, before := time.Now(), store.settles.Load()
		if err := <-done; err != nil {
			h.t.Error(err)
		}
		if took := time.Since(stopped); took > time.Second {
			h.t.Errorf("a clean stop took %v, want no more than what was under way", took)
		}
		if n := store.settles.Load() - before; n > 3 {
			h.t.Errorf("a clean stop made %d settles", n)
		}
		c, _ := h.store.Cursor("d")
		if c.Position != 1 || c.InFlightTo != 1 || c.Owner != "" {
			h.t.Errorf("cursor after a clean stop = %+v, want position and in_flight_to 1, no owner", c)
		}
	})
}

// A stop gives the lease back also when it comes while the lease is being taken.
func TestRelayStopsWhileItTakesOver(t *testing.T) {
	for _, at := range []relaytest.Point{relaytest.AfterAcquire, relaytest.BeforeRecover, relaytest.AfterRecover} {
		bubble(t, func(h *harness) {
			h.commit("k", "a")
			ctx, cancel := context.WithCancel(h.t.Context())
			stops := func(call context.Context, p relaytest.Point) error {
				if p != at {
					return nil
				}
				cancel()
				if at == relaytest.AfterAcquire {
					return nil // the answer was on its way
				}
				return call.Err()
			}
			o := &notices{count: map[relay.NoticeKind]int{}}
			r, err := relay.New(relay.Config{Store: relaytest.FaultyStore(h.store, stops), Owner: "relay", Observer: o,
				Logger: slog.New(slog.DiscardHandler), Destinations: []relay.DestinationConfig{{Name: "d", Destination: h.dest}}})
			if err != nil {
				h.t.Fatal(err)
			}
			if err := r.Run(ctx); err != nil {
				h.t.Errorf("stopped %s: Run() = %v", at, err)
			}
			if c, _ := h.store.Cursor("d"); c.Owner != "" {
				h.t.Errorf("stopped %s: the lease is still %s's, for %v", at, c.Owner, time.Until(c.ExpiresAt))
			}
			if o.count[relay.NoticeLeaseLost] > 0 || o.count[relay.NoticeStoreError] > 0 {
				h.t.Errorf("stopped %s: noticed %v, want no lease lost and no error", at, o.count)
			}
		})
	}
}
