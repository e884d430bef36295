package relaytest_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pillarbox-dev/pillarbox/relay"
	"github.com/pillarbox-dev/pillarbox/relay/relaytest"
)

// A crash takes place at its point: what was before it counts, what comes after it does not.
func TestCrashAt(t *testing.T) {
	for point, want := range map[relaytest.Point]int64{relaytest.BeforeSettle: 1, relaytest.AfterSettle: 2} {
		t.Run(string(point), func(t *testing.T) {
			memory := &relaytest.Memory{}
			crashes := 0
			store := relaytest.FaultyStore(memory, relaytest.CrashAt(point, 2, func() { crashes++ }))
			lease, _, err := store.Acquire(t.Context(), relay.AcquireRequest{Destination: "d", Owner: "o", TTL: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			for position := int64(1); position <= 3; position++ {
				_, err := store.Settle(t.Context(), lease.LeaseID, relay.Settlement{Position: position})
				if crashed := errors.Is(err, relaytest.ErrInjected); crashed != (position >= 2) {
					t.Errorf("settle %d: got error %v, want one from the second on", position, err)
				}
			}
			if _, err := store.Renew(t.Context(), lease.LeaseID); !errors.Is(err, relaytest.ErrInjected) {
				t.Errorf("Renew after the crash: got error %v", err)
			}
			if cursor, _ := memory.Cursor("d"); cursor.Position != want || crashes != 1 {
				t.Errorf("position %d after %d crashes, want %d after 1", cursor.Position, crashes, want)
			}
		})
	}
}

// A fault before Deliver is about reaching the destination, one after it is a lost answer.
func TestFaultyDestination(t *testing.T) {
	for point, want := range map[relaytest.Point]struct {
		kind      relay.Kind
		uncertain bool
		arrived   int
	}{
		relaytest.BeforeDeliver: {relay.Unavailable, false, 0},
		relaytest.AfterDeliver:  {relay.Retry, true, 2},
	} {
		inner := &recorder{}
		d := relaytest.FaultyDestination(batches{inner}, once(point))
		if b, ok := d.(relay.Batcher); !ok || b.MaxBatch() != 10 {
			t.Errorf("the wrapper is not the Batcher that it wraps")
		}
		if _, ok := d.(relay.Router); ok {
			t.Errorf("the wrapper is a Router, and what it wraps is not")
		}
		batch := []relay.Delivery{{Event: &relay.Event{ID: "a"}}, {Event: &relay.Event{ID: "b"}}}
		for i, o := range d.Deliver(t.Context(), batch) {
			if o.Kind != want.kind || o.Uncertain != want.uncertain || o.Code == "" {
				t.Errorf("%s: outcome %d is %+v, want %v, uncertain %v, with a code", point, i, o, want.kind, want.uncertain)
			}
		}
		if got := len(inner.ids()); got != want.arrived {
			t.Errorf("%s: %d events arrived, want %d", point, got, want.arrived)
		}
	}
}

// A call that hangs ends with its context. A settle that was on its way arrives all the same.
func TestLateStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := &relaytest.Memory{}
		store := relaytest.LateStore(memory, rand.New(rand.NewPCG(1, 1)), 1, time.Minute)
		lease, _, err := store.Acquire(t.Context(), relay.AcquireRequest{Destination: "d", Owner: "o", TTL: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := store.Settle(ctx, lease.LeaseID, relay.Settlement{Position: 7}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got error %v, want one that is context.DeadlineExceeded", err)
		}
		if cursor, _ := memory.Cursor("d"); cursor.Position != 0 {
			t.Errorf("position %d after a second, want 0", cursor.Position)
		}
		time.Sleep(time.Minute)
		if cursor, _ := memory.Cursor("d"); cursor.Position != 7 {
			t.Errorf("position %d after a minute, want 7", cursor.Position)
		}
	})
}

// Faults come as often as they are asked for, and only at their points.
func TestFaultsAtPoints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		chance := func() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }
		fails := relaytest.Fails(chance(), 0.25, relaytest.BeforeClaim)
		delays := relaytest.Delays(chance(), time.Second, relaytest.BeforeClaim)
		hangs := relaytest.Hangs(chance(), 0.5, time.Hour, relaytest.BeforeClaim)
		for point, touched := range map[relaytest.Point]bool{relaytest.BeforeClaim: true, relaytest.AfterClaim: false} {
			failed, began := 0, time.Now()
			for range 1000 {
				if fails(t.Context(), point) != nil {
					failed++
				}
			}
			if touched != (failed > 200 && failed < 300) {
				t.Errorf("%d of 1,000 calls failed %s", failed, point)
			}
			for range 100 {
				if err := delays(t.Context(), point); err != nil {
					t.Error(err)
				}
			}
			if took := time.Since(began); touched != (took > 30*time.Second && took < 70*time.Second) || !touched && took != 0 {
				t.Errorf("100 calls were delayed by %v %s", took, point)
			}
			began = time.Now()
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			for range 100 {
				if err := hangs(ended, point); err != nil {
					t.Error(err)
				}
			}
			if took := time.Since(began); touched != (took > 30*time.Hour && took < 70*time.Hour) || !touched && took != 0 {
				t.Errorf("100 calls hung for %v %s", took, point)
			}
		}
	})
}
