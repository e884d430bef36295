package relaytest_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/pillarbox-dev/pillarbox/relay"
	"github.com/pillarbox-dev/pillarbox/relay/relaytest"
)

// A destination that keeps to its word passes the suite.
func TestDestinationSuite(t *testing.T) {
	features := relaytest.DestinationFeatures{Refuses: true, Tombstones: true}
	relaytest.TestDestination(t, features, func(*testing.T) relaytest.Rig { return &farEnd{} })
}

// farEnd is a destination and its far end in one.
type farEnd struct {
	mu       sync.Mutex
	received []relaytest.Received
	hangs    chan struct{} // not nil: closed when it goes on
	stopped  bool
}

func (f *farEnd) Destination() relay.Destination { return f }

func (f *farEnd) MaxBatch() int { return 4 }

func (f *farEnd) Deliver(ctx context.Context, batch []relay.Delivery) []relay.Outcome {
	outcomes := make([]relay.Outcome, len(batch))
	for i, d := range batch {
		outcomes[i] = f.deliver(ctx, d)
	}
	return outcomes
}

func (f *farEnd) deliver(ctx context.Context, d relay.Delivery) relay.Outcome {
	if errors.Is(context.Cause(ctx), relay.ErrShutdown) {
		return relay.Outcome{Kind: relay.Released}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.stopped:
		return relay.Outcome{Kind: relay.Unavailable, Code: "REFUSED"}
	case d.ID == "refused":
		return relay.Outcome{Kind: relay.Reject, Code: "NO"}
	}
	if f.hangs != nil {
		hangs := f.hangs
		f.mu.Unlock()
		defer f.mu.Lock()
		select {
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), relay.ErrShutdown) {
				return relay.Outcome{Kind: relay.Released}
			}
			return relay.Outcome{Kind: relay.Retry, Code: "TIMEOUT", Uncertain: true}
		case <-hangs:
			return relay.Outcome{Kind: relay.Published}
		}
	}
	f.received = append(f.received, relaytest.Received{ID: d.ID, Key: d.Key, Payload: d.Payload})
	return relay.Outcome{Kind: relay.Published}
}

func (f *farEnd) Received(testing.TB) []relaytest.Received {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.received
}

func (f *farEnd) Refused(testing.TB) relay.Event { return relay.Event{ID: "refused"} }

func (f *farEnd) Hang(testing.TB) (resume func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	hangs := make(chan struct{})
	f.hangs = hangs
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.hangs = nil
		close(hangs)
	}
}

func (f *farEnd) Stop(testing.TB) (start func()) {
	f.set(true)
	return func() { f.set(false) }
}

func (f *farEnd) set(stopped bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stopped = stopped
}
