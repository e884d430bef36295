package relaytest

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// shardTests are about what relay.Store says of shards: each has a cursor and a lease of its own, and the ledger is shared.
func shardTests() []storeTest {
	shards := func(f StoreFeatures) bool { return f.Shards }
	return []storeTest{
		{name: "several shards are refused", needs: func(f StoreFeatures) bool { return !f.Shards }, run: shardsRefused},
		{name: "each event is in one shard, and its number in all", needs: shards, run: shardsRead},
		{name: "a page is cut as if it had one shard", needs: shards, run: shardsReadCut},
		{name: "a new destination gets all its cursors", needs: shards, run: shardsNew},
		{name: "relays that begin at once get a shard each", needs: shards, run: shardsRace},
		{name: "another number of shards is refused", needs: shards, run: shardsMismatch},
		{name: "leases of shards are apart", needs: shards, run: shardsLeases},
		{name: "a lease fences its own shard", needs: shards, run: shardsFence},
		{name: "a settle moves its own cursor", needs: shards, run: shardsSettle},
		{name: "the guard pauses its shard, an operator all", needs: shards, run: shardsPause},
		{name: "Recover frees and lists its own rows", needs: shards, run: shardsRecover},
		{name: "Claim takes its own rows", needs: shards, run: shardsClaim},
		{name: "NextDue is of its own rows", needs: shards, run: shardsNextDue},
		{name: "a row whose event is gone is claimed by one shard", needs: shards, run: shardsMissing},
	}
}

// sharded returns the backend with the views that these tests need.
func (b *storeBench) sharded() ShardedBackend {
	b.Helper()
	sharded, ok := b.Backend.(ShardedBackend)
	if !ok {
		b.Fatal("the backend is no ShardedBackend")
	}
	return sharded
}

func (b *storeBench) cursors() []CursorRow {
	b.Helper()
	return b.sharded().Cursors(b, b.dest)
}

// shardRequest is an acquisition of a shard of the bench's destination, for longTTL.
func (b *storeBench) shardRequest(number, of int, owner string) relay.AcquireRequest {
	r := b.request(owner, longTTL)
	r.Shard = relay.Shard{Number: number, Of: of}
	return r
}

// leases takes the leases of all shards, each by an owner of its own.
func (b *storeBench) leases(of int) []relay.LeaseID {
	b.Helper()
	leases := make([]relay.LeaseID, of)
	for n := range leases {
		leases[n] = b.acquire(b.shardRequest(n, of, fmt.Sprint("relay-", n))).LeaseID
	}
	return leases
}

// keyIn returns the nth key that belongs to a shard.
func keyIn(shard, of, nth int) string {
	for i := 0; ; i++ {
		key := fmt.Sprint("key-", i)
		if relay.ShardOf(key, 0, of) != shard {
			continue
		}
		if nth == 0 {
			return key
		}
		nth--
	}
}

func shardsRefused(b *storeBench) {
	r := b.shardRequest(1, 2, "a")
	_, ok, err := b.store.Acquire(b.Context(), r)
	if ok || !errors.Is(err, relay.ErrShards) {
		b.Fatalf("Acquire(%+v): got %v, %v, want an error that is relay.ErrShards", r, ok, err)
	}
	if !strings.Contains(err.Error(), "one shard") {
		b.Errorf("Acquire(%+v): %v, want it to say that there is one shard", r, err)
	}
	if _, ok := b.Cursor(b, b.dest); ok {
		b.Error("the destination has a cursor, want none")
	}
	l := b.acquire(b.shardRequest(0, 1, "a"))
	check(b, "the shard of a destination in one piece", l.Shard.Number, 0)
}

func shardsRead(b *storeBench) {
	keys := []string{"", "", "a", "b", "A", "CASE-1 'x'", "ü", "🙂", " ", `\`, "%", "0", "1", "2", strings.Repeat("long", 100)}
	for i := range 40 {
		keys = append(keys, fmt.Sprint("key-", i), "")
	}
	last := int64(0)
	topics := []string{"x", "y"}
	for i, key := range keys {
		last = b.insert(relay.Event{Key: key, Topic: topics[i%3%2]})[0]
	}
	all := b.read(relay.Query{})
	for _, query := range []relay.Query{
		{}, {Topics: relay.Topics{"x"}}, {After: last / 2}, {After: last, Gaps: []relay.Range{{First: 1, Last: last}}},
		{After: last - 10, Gaps: []relay.Range{{First: 3, Last: 20}, {First: 30, Last: 40}}, Topics: relay.Topics{"y", "z"}},
	} {
		whole := b.read(query)
		for _, of := range []int{1, 2, 3, 7, relay.MaxShards} {
			var events []*relay.Event
			for n := range of {
				query.Shard = relay.Shard{Number: n, Of: of}
				page := b.read(query)
				check(b, fmt.Sprintf("numbers above in shard %s", query.Shard), page.Seqs, whole.Seqs)
				check(b, fmt.Sprintf("numbers out of gaps in shard %s", query.Shard), page.GapSeqs, whole.GapSeqs)
				for _, e := range page.Events {
					if got := relay.ShardOf(e.Key, e.Seq, of); got != n {
						b.Errorf("event %d with key %q is in shard %s, and relay.ShardOf says %d", e.Seq, e.Key, query.Shard, got)
					}
				}
				events = append(events, page.Events...)
			}
			slices.SortFunc(events, func(x, y *relay.Event) int { return cmp.Compare(x.Seq, y.Seq) })
			want := seqsOf(whole.Events)
			slices.Sort(want)
			check(b, fmt.Sprintf("the events of %d shards together", of), seqsOf(events), want)
		}
	}
	check(b, "the events of a destination in one piece", len(all.Events), len(keys))
}

// shardsReadCut: Limit counts the numbers of all shards, MaxBytes what is wanted, so of the shard alone.
func shardsReadCut(b *storeBench) {
	own, other := keyIn(0, 2, 0), keyIn(1, 2, 0)
	shard := relay.Shard{Number: 0, Of: 2}
	big, small := []byte(`"`+strings.Repeat("x", 1000)+`"`), []byte(`"x"`)
	for range 4 {
		b.insert(relay.Event{Key: other, Payload: big}, relay.Event{Key: own, Payload: small})
	}
	page := b.read(relay.Query{Shard: shard, Limit: 3})
	check(b, "numbers within the limit", page.Seqs, []int64{1, 2, 3})
	check(b, "events within the limit", seqsOf(page.Events), []int64{2})
	check(b, "full at the limit", page.Full, true)
	size := page.Events[0].Size()
	page = b.read(relay.Query{Shard: shard, MaxBytes: 4*size + size/2})
	check(b, "events of the shard that fit", seqsOf(page.Events), []int64{2, 4, 6, 8})
	check(b, "full when all fit", page.Full, false)
	page = b.read(relay.Query{Shard: shard, MaxBytes: 2*size + size/2})
	check(b, "events of the shard in less", seqsOf(page.Events), []int64{2, 4})
	check(b, "full in less", page.Full, true)
}

func shardsNew(b *storeBench) {
	r := b.shardRequest(2, 3, "a")
	r.Topics = relay.Topics{"t"}
	l := b.acquire(r)
	check(b, "the id", l.LeaseID, relay.LeaseID{Destination: b.dest, Shard: r.Shard, Owner: "a", Epoch: l.Epoch, TTL: longTTL})
	cursors := b.cursors()
	if len(cursors) != 3 {
		b.Fatalf("the destination has %d cursors, want 3", len(cursors))
	}
	for n, c := range cursors {
		owner := map[int]string{2: "a"}[n]
		if c.Owner != owner || c.Position != 0 || len(c.Gaps) != 0 || c.InFlightTo != 0 || !slices.Equal(c.Topics, r.Topics) {
			b.Errorf("cursor %d: %+v, want it at the beginning, with the topics %q and the owner %q", n, c, r.Topics, owner)
		}
	}

	last := b.insert(relay.Event{}, relay.Event{})[1]
	r = b.in(b.T, "at the end").shardRequest(1, 2, "a")
	r.StartAtEnd = true
	b.acquire(r)
	r.Shard.Number, r.StartAtEnd = 0, false // by now it is not new
	b.acquire(r)
	for n, c := range b.sharded().Cursors(b, "at the end") {
		check(b, fmt.Sprintf("the position of cursor %d at the end", n), c.Position, last)
		check(b, fmt.Sprintf("in flight of cursor %d at the end", n), c.InFlightTo, last)
	}
}

func shardsRace(b *storeBench) {
	const of = 8
	var wg sync.WaitGroup
	for n := range of {
		wg.Go(func() {
			r := b.shardRequest(n, of, fmt.Sprint("relay-", n))
			if _, ok, err := b.store.Acquire(b.Context(), r); !ok || err != nil {
				b.Errorf("Acquire(%+v): got %v, %v, want the lease", r, ok, err)
			}
		})
	}
	wg.Wait()
	for n, c := range b.cursors() {
		check(b, fmt.Sprintf("the owner of shard %d", n), c.Owner, fmt.Sprint("relay-", n))
	}
	check(b, "cursors", len(b.cursors()), of)
}

func shardsMismatch(b *storeBench) {
	other := b.in(b.T, "in one piece")
	b.acquire(b.shardRequest(0, 3, "a"))
	other.acquire(other.request("a", longTTL))
	before, whole := b.cursors(), other.cursors()
	for _, r := range []relay.AcquireRequest{
		b.request("b", longTTL), b.shardRequest(0, 1, "b"), b.shardRequest(0, 2, "b"),
		b.shardRequest(1, 2, "b"), b.shardRequest(0, 4, "a"), b.shardRequest(3, 4, "b"),
		other.shardRequest(0, 2, "a"), other.shardRequest(1, 2, "b"),
	} {
		if _, ok, err := b.store.Acquire(b.Context(), r); ok || !errors.Is(err, relay.ErrShards) {
			b.Errorf("Acquire(%+v): got %v, %v, want an error that is relay.ErrShards", r, ok, err)
		}
	}
	check(b, "the cursors", b.cursors(), before)
	check(b, "the cursor of the destination in one piece", other.cursors(), whole)
}

func shardsLeases(b *storeBench) {
	first := b.acquire(b.shardRequest(0, 2, "a")).LeaseID
	second := b.acquire(b.shardRequest(1, 2, "b")).LeaseID
	check(b, "the holder of shard 0", b.refused(b.shardRequest(0, 2, "c")).Owner, "a")
	check(b, "the holder of shard 1", b.refused(b.shardRequest(1, 2, "c")).Owner, "b")

	first.TTL = shortTTL
	for _, l := range []relay.LeaseID{first, second} {
		if _, err := b.store.Renew(b.Context(), l); err != nil {
			b.Fatal(err)
		}
	}
	next := b.acquireExpired(b.shardRequest(0, 2, "b")) // a renewal of one prolongs no other
	check(b, "the takeover is unclean", next.Unclean, true)
	check(b, "its crash count", next.CrashCount, 1)
	check(b, "the crash count of the other shard", b.cursors()[1].CrashCount, 0)
	if _, err := b.store.Renew(b.Context(), first); !errors.Is(err, relay.ErrLeaseLost) {
		b.Errorf("Renew by the former owner of shard 0: got error %v, want one that is relay.ErrLeaseLost", err)
	}

	if err := b.store.Release(b.Context(), second); err != nil {
		b.Fatal(err)
	}
	check(b, "the owners", []string{b.cursors()[0].Owner, b.cursors()[1].Owner}, []string{"b", ""})
	if _, err := b.store.Renew(b.Context(), next.LeaseID); err != nil {
		b.Errorf("Renew of shard 0 after the release of shard 1: %v", err)
	}
}

// shardsFence uses a lease for the other shard, which has the same owner but another epoch.
func shardsFence(b *storeBench) {
	first := b.acquire(b.shardRequest(0, 2, "a")).LeaseID
	if err := b.store.Release(b.Context(), first); err != nil {
		b.Fatal(err)
	}
	b.acquire(b.shardRequest(0, 2, "a"))
	forged := b.acquire(b.shardRequest(1, 2, "a")).LeaseID
	forged.Shard.Number = 0
	before := b.cursors()
	for name, call := range map[string]func() error{
		"Renew":  func() error { _, err := b.store.Renew(b.Context(), forged); return err },
		"Settle": func() error { _, err := b.store.Settle(b.Context(), forged, numbered(1)); return err },
		"Recover": func() error {
			_, err := b.store.Recover(b.Context(), forged, 10)
			return err
		},
		"Claim": func() error {
			_, err := b.store.Claim(b.Context(), forged, relay.Claim{Due: true, Limit: 10, MaxBytes: 1000})
			return err
		},
	} {
		if err := call(); !errors.Is(err, relay.ErrLeaseLost) {
			b.Errorf("%s with the lease of another shard: got error %v, want one that is relay.ErrLeaseLost", name, err)
		}
	}
	if err := b.store.Release(b.Context(), forged); err != nil {
		b.Errorf("Release with the lease of another shard: %v, want no error", err)
	}
	check(b, "the cursors", b.cursors(), before)
	check(b, "rows", len(b.Deliveries(b, b.dest)), 0)
}

func shardsSettle(b *storeBench) {
	leases := b.leases(3)
	before := b.cursors()
	s := numbered(4)
	s.CrashCount, s.Trouble, s.Asleep = 2, "REFUSED", true
	b.settle(leases[1], s)
	after := b.cursors()
	check(b, "the cursor of shard 0", after[0], before[0])
	check(b, "the cursor of shard 2", after[2], before[2])
	got := after[1]
	check(b, "the position", got.Position, 40)
	check(b, "in flight to", got.InFlightTo, 80)
	check(b, "the gaps", got.Gaps, s.Gaps)
	check(b, "crash count, trouble, asleep and number",
		fmt.Sprintln(got.CrashCount, got.ErrorCode, got.Asleep, got.SettleNumber), "2 REFUSED true 4\n")
	b.settle(leases[0], numbered(1)) // each counts for itself
	b.settle(leases[0], numbered(1))
	for n, want := range []int64{10, 40, 0} {
		check(b, fmt.Sprintf("the position of shard %d", n), b.cursors()[n].Position, want)
	}
	check(b, "rows in the ledger that they share", len(b.Deliveries(b, b.dest)), 3)
}

func shardsPause(b *storeBench) {
	leases := b.leases(2)
	pauses := func() (pauses []relay.Pause) {
		for _, l := range leases {
			renewal, err := b.store.Renew(b.Context(), l)
			if err != nil {
				b.Fatal(err)
			}
			pauses = append(pauses, renewal.Pause)
		}
		return pauses
	}
	guard, operator := relay.Pause{Reason: "REJECT_STORM", By: "guard"}, relay.Pause{Reason: "maintenance", By: "operator"}
	b.settle(leases[1], relay.Settlement{Pause: guard})
	check(b, "the guard's pause", pauses(), []relay.Pause{{}, guard})
	b.SetPause(b, b.dest, operator)
	check(b, "the operator's pause", pauses(), []relay.Pause{operator, operator})
	b.SetPause(b, b.dest, relay.Pause{})
	check(b, "after the operator ended it", pauses(), []relay.Pause{{}, {}})
}

// spread fills the log with three events for each shard, and the ledger with a row for each: one with a key, one whose event
// alone has a key, and one without. It returns the numbers by shard, in this order.
func (b *storeBench) spread(leases []relay.LeaseID, row func(seq int64, key string) relay.Row) (seqs [][]int64) {
	b.Helper()
	of := len(leases)
	seqs = make([][]int64, of)
	for n := range leases {
		seqs[n] = b.insert(relay.Event{Key: keyIn(n, of, 0)}, relay.Event{Key: keyIn(n, of, 1)})
	}
	missing := of // shards without a keyless one
	for missing > 0 {
		seq := b.insert(relay.Event{})[0]
		if n := relay.ShardOf("", seq, of); len(seqs[n]) == 2 {
			seqs[n] = append(seqs[n], seq)
			missing--
		}
	}
	var rows []relay.Row
	for n := range leases {
		rows = append(rows, row(seqs[n][0], keyIn(n, of, 0)),
			row(seqs[n][1], ""), // out of its lane: its event has a key, the row has none
			row(seqs[n][2], ""))
	}
	b.settle(leases[0], relay.Settlement{Rows: rows}) // the ledger does not mind which shard writes
	return seqs
}

func shardsRecover(b *storeBench) {
	leases := b.leases(3)
	seqs := b.spread(leases, publishing)
	parkedAt, lateAt := b.insert(relay.Event{Key: keyIn(1, 3, 2)})[0], b.insert(relay.Event{Key: keyIn(2, 3, 2)})[0]
	b.settle(leases[0], relay.Settlement{Rows: []relay.Row{
		at(parked(parkedAt, keyIn(1, 3, 2)), "parked"), at(failed(lateAt, keyIn(2, 3, 2), later), "late"),
	}})
	b.settle(leases[1], relay.Settlement{Position: seqs[1][0]})

	first := b.recover(leases[0], 10)
	check(b, "in flight in shard 0", first.Publishing, seqs[0])
	check(b, "their count", first.PublishingCount, 3)
	check(b, "numbers above the position of shard 0", first.Above, seqs[0])
	check(b, "lanes of shard 0", first.Lanes, []relay.LaneID{{Endpoint: "e", Key: keyIn(0, 3, 0)}})
	check(b, "NextDue of shard 0", first.NextDue, 0)
	for n, want := range []relay.Status{relay.StatusPending, relay.StatusPublishing, relay.StatusPublishing} {
		for _, seq := range seqs[n] {
			check(b, fmt.Sprintf("row %d of shard %d after the takeover of shard 0", seq, n), b.row(seq).Status, want)
		}
	}

	second := b.recover(leases[1], 2)
	check(b, "in flight in shard 1, listed", second.Publishing, seqs[1][:2])
	check(b, "in flight in shard 1, counted", second.PublishingCount, 3)
	check(b, "numbers above the position of shard 1", second.Above, []int64{seqs[1][1], seqs[1][2], parkedAt})
	check(b, "lanes of shard 1", second.Lanes, []relay.LaneID{{Endpoint: "e", Key: keyIn(1, 3, 0)}})
	if !slices.Contains(second.Endpoints, "parked") {
		b.Errorf("endpoints of shard 1: %q, want the one that has a parked row among them", second.Endpoints)
	}

	b.settle(leases[2], relay.Settlement{Rows: []relay.Row{published(seqs[2][0]), published(seqs[2][1]), published(seqs[2][2])}})
	third := b.recover(leases[2], 10)
	check(b, "in flight in shard 2", third.PublishingCount, 0)
	check(b, "lanes of shard 2", third.Lanes, []relay.LaneID{{Endpoint: "late", Key: keyIn(2, 3, 2)}})
	if third.NextDue < later-time.Minute || third.NextDue > later {
		b.Errorf("NextDue of shard 2 is %v, want %v: what is due at once is of the others", third.NextDue, later)
	}
}

func shardsClaim(b *storeBench) {
	for name, test := range map[string]struct {
		row   func(seq int64, key string) relay.Row
		claim relay.Claim
	}{
		"by due":             {overdue, byDue()},
		"by endpoint":        {parked, byEndpoint("e", 0)},
		"what was discarded": {discarded, byDue()},
	} {
		b.Run(name, func(t *testing.T) {
			b := b.in(t, name)
			leases := b.leases(3)
			seqs := b.spread(leases, test.row)
			small := test.claim
			small.Limit = 2 // the rows of others do not use it up
			for _, n := range []int{2, 0, 1} {
				first := b.claim(leases[n], small)
				rest := b.claim(leases[n], test.claim)
				check(b, fmt.Sprintf("claimed of shard %d", n), sorted(claimedSeqs(first), claimedSeqs(rest)), sorted(seqs[n]))
				check(b, fmt.Sprintf("claimed of shard %d with Limit 2", n), len(first.Deliveries), 2)
				check(b, fmt.Sprintf("shard %d again", n), len(b.claim(leases[n], test.claim).Deliveries), 0)
			}
		})
	}
	b.Run("by lane", func(t *testing.T) {
		b := b.in(t, "by lane")
		leases := b.leases(3)
		seqs := b.spread(leases, parked)
		for n, l := range leases {
			got := b.claim(l, byLane("e", keyIn(n, 3, 0)))
			check(b, fmt.Sprintf("claimed of the lane of shard %d", n), claimedSeqs(got), seqs[n][:1])
			check(b, fmt.Sprintf("the lane of shard %d: blocked", n), got.Blocked, false)
		}
	})
}

func overdue(seq int64, key string) relay.Row { return failed(seq, key, past) }

func sorted(lists ...[]int64) []int64 {
	all := slices.Concat(lists...)
	slices.Sort(all)
	return all
}

func shardsNextDue(b *storeBench) {
	leases := b.leases(2)
	in := []time.Duration{time.Hour, 3 * time.Hour}
	seqs := make([]int64, 2)
	for n := range leases {
		key := keyIn(n, 2, 0)
		seqs[n] = b.insert(relay.Event{Key: key})[0]
		b.settle(leases[n], relay.Settlement{Rows: []relay.Row{failed(seqs[n], key, in[n])}})
	}
	near := func(what string, got, want time.Duration) {
		b.Helper()
		if (got - want).Abs() > time.Minute {
			b.Errorf("%s is %v, want %v", what, got, want)
		}
	}
	for n, l := range leases {
		near(fmt.Sprintf("NextDue of a claim in shard %d", n), b.claim(l, byDue()).NextDue, in[n])
		near(fmt.Sprintf("NextDue of a recovery in shard %d", n), b.recover(l, 10).NextDue, in[n])
	}
	b.settle(leases[0], relay.Settlement{Rows: []relay.Row{failed(seqs[0], keyIn(0, 2, 0), past)}})
	near("NextDue of shard 1 while shard 0 has one that is due", b.claim(leases[1], byEndpoint("none", 0)).NextDue, in[1])
	near("NextDue of shard 0", b.claim(leases[0], byEndpoint("none", 0)).NextDue, 0)
	b.settle(leases[1], relay.Settlement{Rows: []relay.Row{published(seqs[1])}})
	if got := b.claim(leases[1], byDue()).NextDue; got >= 0 {
		b.Errorf("NextDue of shard 1 with nothing that will be due is %v, want it negative", got)
	}
	if got := b.recover(leases[1], 10).NextDue; got >= 0 {
		b.Errorf("NextDue of a recovery in shard 1 with nothing that will be due is %v, want it negative", got)
	}
}

// shardsMissing deletes the events of rows with a key, of rows whose event alone has one, and of rows without.
func shardsMissing(b *storeBench) {
	leases := b.leases(3)
	seqs := b.spread(leases, overdue)
	b.sharded().DeleteEvents(b, slices.Concat(seqs...)...)
	want := make([][]int64, len(leases))
	for n := range leases {
		want[n] = append(want[n], seqs[n][0]) // by the key of the row
		for _, seq := range seqs[n][1:] {     // by the number: no key is known any more
			owner := relay.ShardOf("", seq, len(leases))
			want[owner] = append(want[owner], seq)
		}
	}
	for _, n := range []int{1, 2, 0} {
		got := b.claim(leases[n], byDue())
		check(b, fmt.Sprintf("claimed of shard %d", n), sorted(claimedSeqs(got)), sorted(want[n]))
		for _, d := range got.Deliveries {
			check(b, "the status before", d.Status, relay.StatusDiscarded)
		}
		check(b, fmt.Sprintf("claimed of shard %d again", n), len(b.claim(leases[n], byDue()).Deliveries), 0)
	}
	for _, seq := range slices.Concat(seqs...) {
		row := b.row(seq)
		check(b, "status and code", string(row.Status)+" "+row.ErrorCode, "QUARANTINED "+relay.CodeEventMissing)
	}
}
