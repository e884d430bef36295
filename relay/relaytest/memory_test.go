package relaytest_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/relay"
	"github.com/pillarbox-dev/pillarbox/relay/relaytest"
)

// Numbers commit in any order, get lost, and the horizon proves which are.
func TestMemoryCommitsInAnyOrder(t *testing.T) {
	m := &relaytest.Memory{}
	early, late := m.Begin(), m.Begin()
	early.TakeXID()
	late.Insert(relay.Event{Topic: "t"}) // 1
	lost := early.Savepoint()
	early.Insert(relay.Event{Topic: "t"}) // 2
	early.RollbackTo(lost)
	early.Insert(relay.Event{Topic: "t"}) // 3
	read := func(after int64, gaps ...relay.Range) relay.Page {
		t.Helper()
		page, err := m.Read(t.Context(), relay.Query{After: after, Gaps: gaps, Limit: 10, MaxBytes: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		return page
	}

	if page := read(0); len(page.Events) != 0 || page.Horizon != 1 {
		t.Errorf("before any commit: read %v with horizon %d, want nothing with 1", page.Seqs, page.Horizon)
	}
	early.Commit()
	if page := read(0); !slices.Equal(page.Seqs, []int64{3}) || page.Horizon != 2 {
		t.Errorf("after the first commit: read %v with horizon %d, want [3] with 2", page.Seqs, page.Horizon)
	}
	late.Commit()
	page := read(3, relay.Range{First: 1, Last: 2})
	if !slices.Equal(page.GapSeqs, []int64{1}) || page.Horizon != 3 {
		t.Errorf("after the late commit: read %v out of the gaps with horizon %d, want [1] with 3", page.GapSeqs, page.Horizon)
	}
}

// All shards begin at the position of the slowest, with its gaps and those of the others; what the others settled has rows.
func TestMemoryReshards(t *testing.T) {
	m := &relaytest.Memory{}
	late := m.Begin()
	late.Insert(relay.Event{}) // 1
	lost := m.Begin()
	lost.Insert(relay.Event{}) // 2
	late.Insert(relay.Event{}) // 3
	late.Insert(relay.Event{}) // 4
	lost.Rollback()
	m.Enqueue(make([]relay.Event, 16)...) // 5 to 20
	lease := func(number, of int) relay.LeaseID {
		t.Helper()
		l, ok, err := m.Acquire(t.Context(), relay.AcquireRequest{
			Destination: "d", Shard: relay.Shard{Number: number, Of: of}, Owner: "relay", TTL: time.Hour})
		if !ok || err != nil {
			t.Fatalf("acquire shard %d of %d: %v, %v", number, of, ok, err)
		}
		return l.LeaseID
	}
	settle := func(l relay.LeaseID, s relay.Settlement) {
		t.Helper()
		if _, err := m.Settle(t.Context(), l, s); err != nil {
			t.Fatal(err)
		}
	}
	first, second := lease(0, 2), lease(1, 2)
	settle(first, relay.Settlement{Position: 10, InFlightTo: 12, Gaps: []relay.Range{{First: 1, Last: 4}}, CrashCount: 1})
	late.Commit()
	settle(second, relay.Settlement{Position: 20, InFlightTo: 20, Gaps: []relay.Range{{First: 1, Last: 2}, {First: 15, Last: 16}},
		Published: []relay.Receipt{{Seq: 3}, {Seq: 12}}, Pause: relay.Pause{Reason: "maintenance"}})
	if err := m.Reshard("d", 3); err == nil {
		t.Error("resharded while relays had its leases, want it refused")
	}
	for _, l := range []relay.LeaseID{first, second} {
		if err := m.Release(t.Context(), l); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Reshard("d", 3); err != nil {
		t.Fatal(err)
	}
	cursors := m.Cursors("d")
	if len(cursors) != 3 {
		t.Fatalf("%d cursors, want 3", len(cursors))
	}
	for n, c := range cursors {
		if c.Position != 10 || c.InFlightTo != 12 || c.CrashCount != 1 || c.Pause.Reason != "maintenance" || c.Owner != "" {
			t.Errorf("cursor %d: %+v, want it at 10, in flight to 12, paused, with one crash and no owner", n, c)
		}
		if want := []relay.Range{{First: 1, Last: 2}, {First: 4, Last: 4}}; !slices.Equal(c.Gaps, want) {
			t.Errorf("cursor %d: gaps %v, want %v", n, c.Gaps, want)
		}
	}
	if _, err := m.Renew(t.Context(), first); !errors.Is(err, relay.ErrLeaseLost) {
		t.Errorf("Renew of a lease from before: %v, want relay.ErrLeaseLost", err)
	}
	lease(2, 3)
}
