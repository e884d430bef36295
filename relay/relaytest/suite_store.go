package relaytest

import (
	"reflect"
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// Backend is an empty, migrated database and the store under test on it. Besides the store's own interface the suite
// needs a producer's and an operator's view. What cannot be done fails the test.
type Backend interface {
	Store() relay.Store
	// Begin starts a producer's transaction.
	Begin(t testing.TB) Producer
	// Cursor and Deliveries return what the tables hold of a destination, the ledger by number.
	Cursor(t testing.TB, destination string) (row CursorRow, ok bool)
	Deliveries(t testing.TB, destination string) []DeliveryRow
	// SetPause pauses a destination, all its shards, as an operator does; the zero Pause resumes it.
	SetPause(t testing.TB, destination string, p relay.Pause)
}

// ShardedBackend is a Backend whose destinations may have several shards. Needed with StoreFeatures.Shards.
type ShardedBackend interface {
	Backend
	// Cursors returns the cursors of a destination by shard, none when it has none.
	Cursors(t testing.TB, destination string) []CursorRow
	// DeleteEvents takes events out of the log, as somebody does who should not.
	DeleteEvents(t testing.TB, seqs ...int64)
}

// Producer is a transaction that inserts events. It must end with Commit or Rollback.
type Producer interface {
	// Insert writes the event and returns its number: Event.Seq, or when that is 0 the next one. Missing are made up: ID,
	// Topic and Type. AvailableIn, unless 0, counts from now. A zero CreatedAt is the database's default.
	Insert(t testing.TB, e relay.Event) int64
	Commit(t testing.TB)
	Rollback(t testing.TB)
}

// SavepointProducer is a Producer with savepoints. Needed with StoreFeatures.Gaps.
type SavepointProducer interface {
	Producer
	Savepoint(t testing.TB)
	// RollbackTo undoes what was inserted since the last Savepoint.
	RollbackTo(t testing.TB)
}

// PreparedProducer is a Producer that can be prepared: it survives its connection. Needed with StoreFeatures.TwoPhase.
type PreparedProducer interface {
	Producer
	// Prepare ends the session's part; Commit or Rollback may then come from anywhere.
	Prepare(t testing.TB)
}

// StoreFeatures is what differs between databases.
type StoreFeatures struct {
	// Gaps: transactions of producers overlap, so numbers commit in any order, and a rollback loses them.
	Gaps bool
	// TwoPhase: transactions can be prepared.
	TwoPhase bool
	// Wake: the store is a relay.Waker.
	Wake bool
	// Shards: a destination may have several.
	Shards bool
}

// TestStore runs the conformance suite: what package relay says of a Store, sentence by sentence. open is called once
// for each test. Tests wait for leases to expire by the database's clock, for a second at most.
func TestStore(t *testing.T, f StoreFeatures, open func(t *testing.T) Backend) {
	groups := []struct {
		name  string
		tests []storeTest
	}{
		{"Log", logTests()},
		{"Gaps", gapTests()},
		{"Leases", leaseTests()},
		{"Settle", settleTests()},
		{"Recover", recoverTests()},
		{"Claim", claimTests()},
		{"Shards", shardTests()},
		{"Wake", wakeTests()},
		{"Together", togetherTests()},
	}
	for _, group := range groups {
		t.Run(group.name, func(t *testing.T) {
			for _, test := range group.tests {
				if test.needs != nil && !test.needs(f) {
					continue
				}
				t.Run(test.name, func(t *testing.T) {
					b := open(t)
					test.run(&storeBench{T: t, Backend: b, store: b.Store(), dest: "dest"})
				})
			}
		})
	}
}

// A storeTest is one sentence of package relay's documentation.
type storeTest struct {
	name string
	run  func(*storeBench)
	// needs tells whether the database has what the test is about; nil: every database has.
	needs func(StoreFeatures) bool
}

// storeBench is what a test works with: the backend, and calls that fail the test when they fail.
type storeBench struct {
	*testing.T
	Backend
	store relay.Store
	dest  string // the destination of tests that need just one
}

// in is the same bench for a subtest with a destination of its own.
func (b *storeBench) in(t *testing.T, dest string) *storeBench {
	return &storeBench{T: t, Backend: b.Backend, store: b.store, dest: dest}
}

const (
	// longTTL is a lease that does not expire during a test.
	longTTL = 10 * time.Minute
)

func (b *storeBench) insert(events ...relay.Event) []int64 {
	b.Helper()
	tx := b.Begin(b)
	seqs := make([]int64, len(events))
	for i, e := range events {
		seqs[i] = tx.Insert(b, e)
	}
	tx.Commit(b)
	return seqs
}

// fill inserts events with the numbers from first to last.
func (b *storeBench) fill(first, last int64, e relay.Event) {
	b.Helper()
	tx := b.Begin(b)
	for e.Seq = first; e.Seq <= last; e.Seq++ {
		tx.Insert(b, e)
	}
	tx.Commit(b)
}

// read fills in a limit and a bound that do not matter.
func (b *storeBench) read(q relay.Query) relay.Page {
	b.Helper()
	if q.Limit == 0 {
		q.Limit = 10_000
	}
	if q.MaxBytes == 0 {
		q.MaxBytes = 1 << 30
	}
	page, err := b.store.Read(b.Context(), q)
	if err != nil {
		b.Fatalf("Read(%+v): %v", q, err)
	}
	return page
}

// request is an acquisition of the bench's destination.
func (b *storeBench) request(owner string, ttl time.Duration) relay.AcquireRequest {
	return relay.AcquireRequest{Destination: b.dest, Owner: owner, TTL: ttl}
}

// acquire takes a lease that is free.
func (b *storeBench) acquire(r relay.AcquireRequest) relay.Lease {
	b.Helper()
	l, ok, err := b.store.Acquire(b.Context(), r)
	if err != nil || !ok {
		b.Fatalf("Acquire(%+v): got %+v, %v, %v, want the lease", r, l, ok, err)
	}
	return l
}

// acquireExpired takes a lease as soon as it has expired.
func (b *storeBench) acquireExpired(r relay.AcquireRequest) relay.Lease {
	b.Helper()
	for began := time.Now(); time.Since(began) < 10*time.Second; time.Sleep(10 * time.Millisecond) {
		l, ok, err := b.store.Acquire(b.Context(), r)
		if err != nil {
			b.Fatalf("Acquire(%+v): %v", r, err)
		}
		if ok {
			return l
		}
	}
	b.Fatalf("Acquire(%+v): the lease has not expired after 10 s", r)
	return relay.Lease{}
}

// lease takes a lease that lasts.
func (b *storeBench) lease() relay.LeaseID {
	b.Helper()
	return b.acquire(b.request("relay", longTTL)).LeaseID
}

func (b *storeBench) settle(l relay.LeaseID, s relay.Settlement) relay.Settled {
	b.Helper()
	settled, err := b.store.Settle(b.Context(), l, s)
	if err != nil {
		b.Fatalf("Settle: %v", err)
	}
	return settled
}

func (b *storeBench) recover(l relay.LeaseID, limit int) relay.Recovered {
	b.Helper()
	found, err := b.store.Recover(b.Context(), l, limit)
	if err != nil {
		b.Fatalf("Recover: %v", err)
	}
	return found
}

// claim fills in a limit and a bound that do not matter.
func (b *storeBench) claim(l relay.LeaseID, c relay.Claim) relay.Claimed {
	b.Helper()
	if c.Limit == 0 {
		c.Limit = 1000
	}
	if c.MaxBytes == 0 {
		c.MaxBytes = 1 << 30
	}
	claimed, err := b.store.Claim(b.Context(), l, c)
	if err != nil {
		b.Fatalf("Claim(%+v): %v", c, err)
	}
	return claimed
}

// cursor returns the cursor of the bench's destination.
func (b *storeBench) cursor() CursorRow {
	b.Helper()
	row, ok := b.Cursor(b, b.dest)
	if !ok {
		b.Fatalf("destination %s has no cursor", b.dest)
	}
	return row
}

// row returns a row of the ledger of the bench's destination.
func (b *storeBench) row(seq int64) DeliveryRow {
	b.Helper()
	for _, row := range b.Deliveries(b, b.dest) {
		if row.Seq == seq {
			return row
		}
	}
	b.Fatalf("destination %s has no delivery row %d", b.dest, seq)
	return DeliveryRow{}
}

// check reports a difference.
func check[T any](t testing.TB, what string, got, want T) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s:\n got %+v\nwant %+v", what, got, want)
	}
}

// seqsOf returns the numbers of events.
func seqsOf(events []*relay.Event) []int64 {
	var seqs []int64
	for _, e := range events {
		seqs = append(seqs, e.Seq)
	}
	return seqs
}
