package relaytest

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// leaseTests are about relay.Leases.
func leaseTests() []storeTest {
	return []storeTest{
		{name: "a new destination starts at the beginning", run: leaseNew},
		{name: "a new destination may start at the end", run: leaseStartAtEnd},
		{name: "a held lease is refused with its owner", run: leaseHeld},
		{name: "one of ten gets it", run: leaseRace},
		{name: "a released lease is free at once", run: leaseReleased},
		{name: "an expired lease is taken over, and fences", run: leaseExpired},
		{name: "Renew prolongs", run: leaseRenew},
		{name: "Settle prolongs", run: leaseSettleProlongs},
		{name: "an expired lease that nobody took is still good", run: leaseExpiredUntaken},
		{name: "the cursor outlives its owner", run: leaseCursor},
		{name: "crash_count counts unclean takeovers without progress", run: leaseCrashCount},
		{name: "a pause is seen by everyone until an operator ends it", run: leasePause},
		{name: "topics are stored", run: leaseTopics},
		{name: "LastSeq follows the log", run: leaseLastSeq},
		{name: "destinations are apart", run: leaseApart},
	}
}

// shortTTL is a lease that a test waits out.
const shortTTL = 150 * time.Millisecond

func leaseNew(b *storeBench) {
	b.fill(1, 3, relay.Event{})
	l := b.acquire(b.request("a", longTTL))
	if l.Epoch < 1 {
		b.Errorf("epoch %d, want at least 1", l.Epoch)
	}
	if l.ExpiresIn <= 0 || l.ExpiresIn > longTTL {
		b.Errorf("expires in %v, want at most %v", l.ExpiresIn, longTTL)
	}
	check(b, "the id", l.LeaseID, relay.LeaseID{Destination: b.dest, Owner: "a", Epoch: l.Epoch, TTL: longTTL})
	if l.Position != 0 || len(l.Gaps) != 0 || l.InFlightTo != 0 || l.Unclean || l.CrashCount != 0 || l.Pause != (relay.Pause{}) {
		b.Errorf("got %+v, want the beginning of the log, clean and not paused", l)
	}
}

func leaseStartAtEnd(b *storeBench) {
	atEnd := func(name string) relay.AcquireRequest {
		return relay.AcquireRequest{Destination: name, Owner: "a", TTL: longTTL, StartAtEnd: true}
	}
	check(b, "position in an empty log", b.acquire(atEnd("empty")).Position, 0)
	seqs := b.insert(relay.Event{}, relay.Event{}, relay.Event{})
	l := b.acquire(atEnd("new"))
	check(b, "position of a new destination", l.Position, seqs[2])
	check(b, "in flight of a new destination", l.InFlightTo, seqs[2])
	check(b, "numbers of what follows", b.read(relay.Query{After: l.Position}).Seqs, nil)
	next := b.insert(relay.Event{})
	check(b, "numbers of what follows", b.read(relay.Query{After: l.Position}).Seqs, next)

	old := b.acquire(relay.AcquireRequest{Destination: "old", Owner: "a", TTL: longTTL})
	if err := b.store.Release(b.Context(), old.LeaseID); err != nil {
		b.Fatal(err)
	}
	check(b, "position of a destination that is not new", b.acquire(atEnd("old")).Position, 0)
}

// refused tries to take a lease that another relay holds.
func (b *storeBench) refused(r relay.AcquireRequest) relay.Lease {
	b.Helper()
	held, ok, err := b.store.Acquire(b.Context(), r)
	if ok || err != nil {
		b.Fatalf("Acquire by %s: got %v, %v, want the lease refused", r.Owner, ok, err)
	}
	return held
}

func leaseHeld(b *storeBench) {
	b.acquire(b.request("a", longTTL))
	held := b.refused(b.request("b", longTTL))
	check(b, "the holder", held.Owner, "a")
	if held.ExpiresIn <= 0 || held.ExpiresIn > longTTL {
		b.Errorf("expires in %v, want at most %v", held.ExpiresIn, longTTL)
	}
	check(b, "the owner on record", b.cursor().Owner, "a")
}

func leaseRace(b *storeBench) {
	var won atomic.Int32
	var wg sync.WaitGroup
	for i := range 10 {
		wg.Go(func() {
			_, ok, err := b.store.Acquire(b.Context(), b.request(fmt.Sprint("relay-", i), longTTL))
			if err != nil {
				b.Error(err)
			}
			if ok {
				won.Add(1)
			}
		})
	}
	wg.Wait()
	check(b, "relays that got the lease", won.Load(), 1)
}

func leaseReleased(b *storeBench) {
	first := b.acquire(b.request("a", longTTL))
	if err := b.store.Release(b.Context(), first.LeaseID); err != nil {
		b.Fatal(err)
	}
	second := b.acquire(b.request("b", longTTL))
	if second.Epoch <= first.Epoch {
		b.Errorf("epoch %d after %d, want more", second.Epoch, first.Epoch)
	}
	if second.Unclean || second.CrashCount != 0 {
		b.Errorf("unclean is %v and crash count %d after a release, want false and 0", second.Unclean, second.CrashCount)
	}
	// A release that comes late does no harm to the next owner.
	if err := b.store.Release(b.Context(), first.LeaseID); err != nil {
		b.Errorf("release of a lost lease: %v, want no error", err)
	}
	check(b, "the holder after a late release", b.refused(b.request("c", longTTL)).Owner, "b")
}

func leaseExpired(b *storeBench) {
	first := b.acquire(b.request("a", shortTTL)).LeaseID
	b.settle(first, relay.Settlement{Position: 5, InFlightTo: 9})
	second := b.acquireExpired(b.request("b", longTTL))
	if second.Epoch <= first.Epoch || !second.Unclean {
		b.Errorf("epoch %d after %d, unclean %v, want more, and unclean", second.Epoch, first.Epoch, second.Unclean)
	}

	before := b.cursor()
	for name, call := range map[string]func() error{
		"Renew": func() error { _, err := b.store.Renew(b.Context(), first); return err },
		"Settle": func() error {
			_, err := b.store.Settle(b.Context(), first, relay.Settlement{
				Position: 7, Published: []relay.Receipt{{Seq: 6}}, Rows: []relay.Row{{Seq: 7, Status: relay.StatusFailed}},
				Trouble: "X", Pause: relay.Pause{Reason: "x", By: "x"},
			})
			return err
		},
		"Recover": func() error { _, err := b.store.Recover(b.Context(), first, 10); return err },
		"Claim": func() error {
			_, err := b.store.Claim(b.Context(), first, relay.Claim{Due: true, Limit: 10, MaxBytes: 1000})
			return err
		},
	} {
		if err := call(); !errors.Is(err, relay.ErrLeaseLost) {
			b.Errorf("%s by the former owner: got error %v, want one that is relay.ErrLeaseLost", name, err)
		}
	}
	if err := b.store.Release(b.Context(), first); err != nil {
		b.Errorf("Release by the former owner: %v, want no error", err)
	}
	check(b, "the cursor after calls of the former owner", b.cursor(), before)
	check(b, "the ledger after calls of the former owner", len(b.Deliveries(b, b.dest)), 0)
}

func leaseRenew(b *storeBench) {
	l := b.acquire(b.request("a", shortTTL)).LeaseID
	l.TTL = longTTL
	if _, err := b.store.Renew(b.Context(), l); err != nil {
		b.Fatal(err)
	}
	time.Sleep(2 * shortTTL)
	b.refused(b.request("b", longTTL))
}

func leaseSettleProlongs(b *storeBench) {
	l := b.acquire(b.request("a", shortTTL)).LeaseID
	l.TTL = longTTL
	b.settle(l, relay.Settlement{})
	time.Sleep(2 * shortTTL)
	b.refused(b.request("b", longTTL))
}

func leaseExpiredUntaken(b *storeBench) {
	l := b.acquire(b.request("a", shortTTL)).LeaseID
	time.Sleep(2 * shortTTL)
	if _, err := b.store.Renew(b.Context(), l); err != nil {
		b.Errorf("Renew of an expired lease that nobody took: %v, want no error", err)
	}
	time.Sleep(2 * shortTTL)
	b.settle(l, relay.Settlement{Position: 3})
	check(b, "the position", b.cursor().Position, 3)
}

func leaseCursor(b *storeBench) {
	first := b.lease()
	gaps := []relay.Range{{First: 1, Last: 1}, {First: 4, Last: 9}, {First: 11, Last: 1 << 61}}
	b.settle(first, relay.Settlement{Position: 1 << 62, Gaps: gaps, InFlightTo: 1<<62 + 5})
	if err := b.store.Release(b.Context(), first); err != nil {
		b.Fatal(err)
	}
	second := b.acquire(b.request("b", longTTL))
	check(b, "the position", second.Position, 1<<62)
	check(b, "the gaps", second.Gaps, gaps)
	check(b, "in flight to", second.InFlightTo, 1<<62+5)

	b.settle(second.LeaseID, relay.Settlement{Position: 1<<62 + 5, InFlightTo: 1<<62 + 5})
	if cursor := b.cursor(); len(cursor.Gaps) != 0 {
		b.Errorf("gaps %v after a settle without any, want none", cursor.Gaps)
	}
}

func leaseCrashCount(b *storeBench) {
	position := int64(0)
	// takeOver lets a lease expire after what its owner settled, and returns the next one.
	next := b.acquire(b.request("relay-0", shortTTL))
	for i, step := range []struct {
		progress, clean bool
		set             int // settled as crash count; negative: no settle
		want            int
		why             string
	}{
		{set: -1, want: 1, why: "unclean without progress"},
		{progress: true, set: 1, want: 1, why: "unclean with progress"},
		{set: 1, want: 2, why: "unclean without progress"},
		{clean: true, set: 2, want: 2, why: "clean without progress"},
		{set: -1, want: 3, why: "unclean without progress"},
		{progress: true, set: 3, want: 4, why: "with progress, but the count had reached IsolateAfter"},
		{progress: true, set: 0, want: 0, why: "set to 0, with progress"},
		{set: 7, want: 8, why: "set to 7"},
	} {
		if step.progress {
			position++
		}
		if step.set >= 0 {
			b.settle(next.LeaseID, relay.Settlement{Position: position, CrashCount: step.set})
		}
		r := b.request(fmt.Sprint("relay-", i+1), shortTTL)
		if step.clean {
			if err := b.store.Release(b.Context(), next.LeaseID); err != nil {
				b.Fatal(err)
			}
			next = b.acquire(r)
		} else {
			next = b.acquireExpired(r)
		}
		if next.CrashCount != step.want || next.Unclean == step.clean {
			b.Errorf("step %d, %s: crash count %d, unclean %v, want %d, %v",
				i+1, step.why, next.CrashCount, next.Unclean, step.want, !step.clean)
		}
		check(b, "the crash count on record", b.cursor().CrashCount, step.want)
	}
}

func leasePause(b *storeBench) {
	l := b.lease()
	renewed := func() relay.Pause {
		renewal, err := b.store.Renew(b.Context(), l)
		if err != nil {
			b.Fatal(err)
		}
		return renewal.Pause
	}
	check(b, "the pause of a new destination", renewed(), relay.Pause{})
	guard := relay.Pause{Reason: "REJECT_STORM: 20 rejects in a row", By: "guard"}
	b.settle(l, relay.Settlement{Pause: guard})
	check(b, "the guard's pause at a renewal", renewed(), guard)
	b.settle(l, relay.Settlement{})
	check(b, "the guard's pause after a settle without one", renewed(), guard)
	check(b, "the guard's pause for who is refused", b.refused(b.request("b", longTTL)).Pause, guard)
	if err := b.store.Release(b.Context(), l); err != nil {
		b.Fatal(err)
	}
	next := b.acquire(b.request("b", longTTL))
	check(b, "the guard's pause for the next owner", next.Pause, guard)
	l = next.LeaseID
	b.SetPause(b, b.dest, relay.Pause{})
	check(b, "the pause after an operator ended it", renewed(), relay.Pause{})
	operator := relay.Pause{Reason: "maintenance 'til 6", By: "ü"}
	b.SetPause(b, b.dest, operator)
	check(b, "the operator's pause", renewed(), operator)
}

func leaseTopics(b *storeBench) {
	r := b.request("a", longTTL)
	for _, topics := range []relay.Topics{{"reg.*", `a"b,{}'\`}, nil, {"x"}} {
		r.Topics = topics
		l := b.acquire(r)
		check(b, "topics", fmt.Sprintf("%q", b.cursor().Topics), fmt.Sprintf("%q", topics))
		if err := b.store.Release(b.Context(), l.LeaseID); err != nil {
			b.Fatal(err)
		}
	}
}

func leaseLastSeq(b *storeBench) {
	l := b.acquire(b.request("a", longTTL))
	check(b, "LastSeq of an empty log", l.LastSeq, 0)
	seqs := b.insert(relay.Event{}, relay.Event{})
	renewal, err := b.store.Renew(b.Context(), l.LeaseID)
	if err != nil {
		b.Fatal(err)
	}
	check(b, "LastSeq at a renewal", renewal.LastSeq, seqs[1])
	other := b.acquire(relay.AcquireRequest{Destination: "other", Owner: "a", TTL: longTTL})
	check(b, "LastSeq at an acquisition", other.LastSeq, seqs[1])
}

func leaseApart(b *storeBench) {
	names := []string{"a", "A", "a-1", "ü'\"%"}
	for i, name := range names {
		l := b.acquire(relay.AcquireRequest{Destination: name, Owner: "relay", TTL: longTTL})
		b.settle(l.LeaseID, relay.Settlement{
			Position: int64(i + 1), Rows: []relay.Row{{Seq: 1, Status: relay.StatusFailed, Attempts: i}},
		})
	}
	for i, name := range names {
		row, ok := b.Cursor(b, name)
		if !ok || row.Position != int64(i+1) {
			b.Errorf("destination %s: position %d, %v, want %d", name, row.Position, ok, i+1)
		}
		rows := b.Deliveries(b, name)
		if len(rows) != 1 || rows[0].Attempts != i {
			b.Errorf("destination %s: rows %+v, want one with %d attempts", name, rows, i)
		}
	}
}
