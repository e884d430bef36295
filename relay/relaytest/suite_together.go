package relaytest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// wakeTests are about relay.Waker.
func wakeTests() []storeTest {
	wake := func(f StoreFeatures) bool { return f.Wake }
	return []storeTest{
		{name: "a commit wakes a relay that sleeps", needs: wake, run: wakeAsleep},
		{name: "a rollback does not", needs: wake, run: wakeRollback},
		{name: "Listen ends with its context", needs: wake, run: wakeEnds},
	}
}

func (b *storeBench) waker() relay.Waker {
	b.Helper()
	w, ok := b.store.(relay.Waker)
	if !ok {
		b.Fatal("the features say Wake, but the store is not a relay.Waker")
	}
	return w
}

func wakeAsleep(b *storeBench) {
	l := b.lease()
	for range 3 { // it works again and again
		ctx, cancel := context.WithCancel(b.Context())
		woken, err := b.waker().Listen(ctx)
		if err != nil {
			b.Fatal(err)
		}
		b.settle(l, relay.Settlement{Asleep: true})
		b.insert(relay.Event{})
		select {
		case _, ok := <-woken:
			if !ok {
				b.Error("the channel was closed, want a value")
			}
		case <-time.After(5 * time.Second):
			b.Error("no value 5 s after a commit while a relay was asleep")
		}
		cancel()
		b.settle(l, relay.Settlement{})
	}
}

func wakeRollback(b *storeBench) {
	l := b.lease()
	woken, err := b.waker().Listen(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	b.settle(l, relay.Settlement{Asleep: true})
	tx := b.Begin(b)
	tx.Insert(b, relay.Event{})
	tx.Rollback(b)
	select {
	case <-woken:
		b.Error("a value after a rollback, want none")
	case <-time.After(100 * time.Millisecond):
	}
}

func wakeEnds(b *storeBench) {
	ctx, cancel := context.WithCancel(b.Context())
	woken, err := b.waker().Listen(ctx)
	if err != nil {
		b.Fatal(err)
	}
	cancel()
	deadline := time.After(5 * time.Second)
	for {
		select {
		case _, ok := <-woken:
			if !ok {
				return
			}
		case <-deadline:
			b.Fatal("the channel is open 5 s after the context ended")
		}
	}
}

// togetherTests use one store from many goroutines.
func togetherTests() []storeTest {
	return []storeTest{
		{name: "ten goroutines with destinations of their own", run: togetherApart},
		{name: "ten goroutines after one lease: no number is settled twice", run: togetherFenced},
	}
}

// togetherApart lets ten relays read the same log, publish half of it at once and the other half out of the ledger.
func togetherApart(b *storeBench) {
	const events = 200
	var wg sync.WaitGroup
	wg.Go(func() {
		for range events {
			b.insert(relay.Event{Key: "k"})
		}
	})
	for i := range 10 {
		wg.Go(func() {
			name := fmt.Sprint("dest-", i)
			if err := b.carry(name, events); err != nil {
				b.Errorf("%s: %v", name, err)
			}
		})
	}
	wg.Wait()
	for i := range 10 {
		rows := b.Deliveries(b, fmt.Sprint("dest-", i))
		published := 0
		for _, row := range rows {
			if row.Status == relay.StatusPublished {
				published++
			}
		}
		check(b, fmt.Sprintf("published to dest-%d", i), published, events)
	}
}

// carry reads until it has seen as many events. Each odd one is published, each even one parked, claimed and published.
func (b *storeBench) carry(name string, events int) error {
	ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
	defer cancel()
	lease, ok, err := b.store.Acquire(ctx, relay.AcquireRequest{Destination: name, Owner: name, TTL: longTTL})
	if err != nil || !ok {
		return fmt.Errorf("acquire: %v, %w", ok, err)
	}
	position := int64(0)
	for seen := 0; seen < events; {
		page, err := b.store.Read(ctx, relay.Query{After: position, Limit: 20, MaxBytes: 1 << 20})
		if err != nil {
			return err
		}
		var s relay.Settlement
		for i, e := range page.Events {
			position = e.Seq
			if i%2 == 1 {
				s.Published = append(s.Published, relay.Receipt{Seq: e.Seq})
			} else {
				s.Rows = append(s.Rows, relay.Row{Seq: e.Seq, Status: relay.StatusPending, Key: e.Key, OpenLane: true})
			}
		}
		seen += len(page.Events)
		s.Position = position
		if _, err := b.store.Settle(ctx, lease.LeaseID, s); err != nil {
			return err
		}
		claimed, err := b.store.Claim(ctx, lease.LeaseID, relay.Claim{Lane: &relay.LaneID{Key: "k"}, Limit: 100, MaxBytes: 1 << 20})
		if err != nil {
			return err
		}
		s = relay.Settlement{Position: position}
		for _, d := range claimed.Deliveries {
			s.Rows = append(s.Rows, relay.Row{Seq: d.Event.Seq, Status: relay.StatusPublished, Attempts: 1, Attempted: true})
		}
		if _, err := b.store.Settle(ctx, lease.LeaseID, s); err != nil {
			return err
		}
	}
	return b.store.Release(ctx, lease.LeaseID)
}

// togetherFenced lets ten relays fight for one destination. Each takes the lease, moves the position on by ten, writing its
// name into the rows, and goes without releasing it. Whoever comes too late must be told so; so each row is written once.
func togetherFenced(b *storeBench) {
	const rounds = 3
	var wrote [10]int
	var wg sync.WaitGroup
	for i := range 10 {
		wg.Go(func() {
			for round := range rounds {
				wrote[i] += b.fight(fmt.Sprintf("relay-%d-%d", i, round))
			}
		})
	}
	wg.Wait()
	total := 0
	for _, n := range wrote {
		total += n
	}
	if total == 0 {
		b.Error("nobody settled anything")
	}
	check(b, "the position", b.cursor().Position, int64(total))
	check(b, "rows", len(b.Deliveries(b, b.dest)), total)
}

// fight takes the lease and settles number after number until it is lost or ten are done. It returns how many were settled.
func (b *storeBench) fight(owner string) (settled int) {
	lease := b.acquireExpired(relay.AcquireRequest{Destination: b.dest, Owner: owner, TTL: 20 * time.Millisecond})
	for next := lease.Position + 1; settled < 10; next++ {
		if settled%4 == 3 {
			time.Sleep(15 * time.Millisecond) // the lease is nearly over, or over
		}
		_, err := b.store.Settle(b.Context(), lease.LeaseID, relay.Settlement{
			Position: next, Published: []relay.Receipt{{Seq: next, Receipt: owner}},
		})
		if errors.Is(err, relay.ErrLeaseLost) {
			return settled
		}
		if err != nil {
			b.Errorf("%s: settle %d: %v", owner, next, err)
			return settled
		}
		settled++
	}
	return settled
}
