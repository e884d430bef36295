package relaytest_test

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pillarbox-dev/pillarbox/relay"
	"github.com/pillarbox-dev/pillarbox/relay/relaytest"
)

// What the simulation found, each in its smallest form.

// recorder is a destination that answers as told.
type recorder struct {
	mu     sync.Mutex
	got    []relay.Delivery
	answer func(ctx context.Context, d relay.Delivery) relay.Outcome // nil: published
}

func (r *recorder) Deliver(ctx context.Context, batch []relay.Delivery) []relay.Outcome {
	outcomes := make([]relay.Outcome, len(batch))
	for i, d := range batch {
		r.mu.Lock()
		r.got = append(r.got, d)
		r.mu.Unlock()
		outcomes[i] = relay.Outcome{Kind: relay.Published}
		if r.answer != nil {
			outcomes[i] = r.answer(ctx, d)
		}
	}
	return outcomes
}

func (r *recorder) ids() (ids []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range r.got {
		ids = append(ids, d.ID)
	}
	return ids
}

// counter counts possible duplicates.
type counter struct {
	relay.Unobserved
	mu sync.Mutex
	n  int
}

func (c *counter) Noticed(_ string, n relay.Notice) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n.Kind == relay.NoticePossibleDuplicate {
		c.n += n.Count
	}
}

func (c *counter) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

// startRelay runs a relay with one destination "d" until the returned func is called.
func startRelay(t *testing.T, c relay.Config, d relay.DestinationConfig) (stop func()) {
	t.Helper()
	d.Name = "d"
	c.Destinations = []relay.DestinationConfig{d}
	c.Logger = slog.New(slog.DiscardHandler)
	if c.Owner == "" {
		c.Owner = "relay"
	}
	r, err := relay.New(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	return sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run() = %v", err)
		}
	})
}

// once fails one call at a point.
func once(p relaytest.Point) relaytest.Fault {
	var passed sync.Once
	return func(_ context.Context, at relaytest.Point) (err error) {
		if at == p {
			passed.Do(func() { err = relaytest.ErrInjected })
		}
		return err
	}
}

// A claim whose answer is lost has taken rows that the relay does not know of. They must not wait for its end.
func TestLostClaimAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &relaytest.Memory{}
		dest := &recorder{answer: func(_ context.Context, d relay.Delivery) relay.Outcome {
			if d.Attempt == 1 {
				return relay.Outcome{Kind: relay.Retry, Code: "HTTP_500"}
			}
			return relay.Outcome{Kind: relay.Published}
		}}
		taken := false
		lost := func(_ context.Context, at relaytest.Point) error {
			if row, _ := store.Delivery("d", 1); at == relaytest.AfterClaim && row.Status == relay.StatusPublishing && !taken {
				taken = true
				return relaytest.ErrInjected
			}
			return nil
		}
		stop := startRelay(t, relay.Config{Store: relaytest.FaultyStore(store, lost)}, relay.DestinationConfig{Destination: dest})
		defer stop()
		store.Enqueue(relay.Event{ID: "a", Key: "k"}, relay.Event{ID: "b", Key: "k"})
		time.Sleep(time.Minute)
		for seq := range int64(2) {
			if row, _ := store.Delivery("d", seq+1); row.Status != relay.StatusPublished {
				t.Errorf("delivery %d is %q a minute after a lost answer, want it published", seq+1, row.Status)
			}
		}
		if !taken {
			t.Error("no answer was lost")
		}
	})
}

// An attempt that a clean stop breaks off may have arrived. The next owner's is then a duplicate that must be counted.
func TestUncertainAtShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, notices := &relaytest.Memory{}, &counter{}
		hangs := &recorder{answer: func(ctx context.Context, _ relay.Delivery) relay.Outcome {
			<-ctx.Done()
			return relay.Outcome{Kind: relay.Retry, Code: "TIMEOUT", Uncertain: true}
		}}
		stop := startRelay(t, relay.Config{Store: store, Observer: notices, Drain: time.Second},
			relay.DestinationConfig{Destination: hangs})
		store.Enqueue(relay.Event{ID: "a"})
		time.Sleep(100 * time.Millisecond)
		stop()
		dest := &recorder{}
		stop = startRelay(t, relay.Config{Store: store, Observer: notices}, relay.DestinationConfig{Destination: dest})
		time.Sleep(time.Second)
		stop()
		if got, want := dest.ids(), []string{"a"}; !slices.Equal(got, want) {
			t.Errorf("the next owner delivered %v, want %v", got, want)
		}
		if notices.count() != 1 {
			t.Errorf("%d possible duplicates were noticed, want 1", notices.count())
		}
	})
}

// A batch whose answer is lost may have arrived as a whole: those behind the first of a lane are tried again uncharged, but they
// are possible duplicates too, and say so.
func TestUncertainBehindTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, notices := &relaytest.Memory{}, &counter{}
		lost := true
		dest := &recorder{answer: func(context.Context, relay.Delivery) relay.Outcome {
			if lost {
				return relay.Outcome{Kind: relay.Retry, Code: "RESET", Uncertain: true}
			}
			return relay.Outcome{Kind: relay.Published}
		}}
		store.Enqueue(relay.Event{ID: "a", Key: "k"}, relay.Event{ID: "b", Key: "k"}, relay.Event{ID: "c", Key: "k"})
		stop := startRelay(t, relay.Config{Store: store, Observer: notices},
			relay.DestinationConfig{Destination: batches{dest}, Retry: relay.RetryPolicy{Base: time.Second, Max: time.Second}})
		time.Sleep(500 * time.Millisecond)
		lost = false
		if got := notices.count(); got != 3 {
			t.Errorf("%d possible duplicates were noticed, want 3", got)
		}
		time.Sleep(time.Minute)
		stop()
		if got, want := dest.ids(), []string{"a", "b", "c", "a", "b", "c"}; !slices.Equal(got, want) {
			t.Fatalf("delivered %v, want %v", got, want)
		}
		for _, d := range dest.got[4:] { // the first was charged: its attempt says it
			if !d.PossibleDuplicate {
				t.Errorf("%s was sent again and not called a possible duplicate", d.ID)
			}
		}
	})
}

// A destination that forgets outcomes may have sent what they are about.
func TestForgottenOutcomes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, notices := &relaytest.Memory{}, &counter{}
		dest := forgetful{batches{&recorder{}}}
		store.Enqueue(relay.Event{ID: "a"}, relay.Event{ID: "b"})
		stop := startRelay(t, relay.Config{Store: store, Observer: notices}, relay.DestinationConfig{Destination: dest})
		time.Sleep(time.Minute)
		stop()
		if got, want := dest.ids(), []string{"a", "b", "b"}; !slices.Equal(got, want) {
			t.Errorf("delivered %v, want %v", got, want)
		}
		if row, _ := store.Delivery("d", 2); row.Status != relay.StatusPublished || row.Attempts != 2 {
			t.Errorf("the delivery without an outcome ended as %+v, want it published by its second attempt", row)
		}
		if notices.count() != 1 {
			t.Errorf("%d possible duplicates were noticed, want 1", notices.count())
		}
	})
}

// forgetful gives the outcome of the first of a batch alone.
type forgetful struct{ batches }

func (f forgetful) Deliver(ctx context.Context, batch []relay.Delivery) []relay.Outcome {
	return f.batches.Deliver(ctx, batch)[:1]
}

// A takeover whose answer is lost has made rows due that were in flight. What is sent again is counted all the same.
func TestLostRecoverAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, notices := &relaytest.Memory{}, &counter{}
		lease, _, err := store.Acquire(t.Context(), relay.AcquireRequest{Destination: "d", Owner: "former", TTL: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		store.Enqueue(relay.Event{ID: "a"})
		if _, err := store.Settle(t.Context(), lease.LeaseID, relay.Settlement{Position: 1, Rows: []relay.Row{
			{Seq: 1, Status: relay.StatusPublishing, Attempts: 1, Attempted: true},
		}}); err != nil {
			t.Fatal(err)
		}
		faulty := relaytest.FaultyStore(store, once(relaytest.AfterRecover))
		stop := startRelay(t, relay.Config{Store: faulty, Observer: notices}, relay.DestinationConfig{Destination: &recorder{}})
		time.Sleep(time.Minute)
		stop()
		if row, _ := store.Delivery("d", 1); row.Status != relay.StatusPublished {
			t.Errorf("the delivery is %q, want it published", row.Status)
		}
		if notices.count() != 1 {
			t.Errorf("%d possible duplicates were noticed, want 1", notices.count())
		}
	})
}

// A gap is looked at in every read: the read that sees the later event of a key must see the earlier one too, however
// long that one's transaction was open.
func TestOrderOverAnOldGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, dest := &relaytest.Memory{}, &recorder{}
		stop := startRelay(t, relay.Config{Store: store}, relay.DestinationConfig{Destination: dest})
		defer stop()
		for age := range 40 {
			first := store.Begin()
			first.Insert(relay.Event{ID: "first", Key: "k"})
			store.Enqueue(relay.Event{ID: "other"})
			time.Sleep(time.Duration(age) * 100 * time.Millisecond)
			first.Commit()
			store.Enqueue(relay.Event{ID: "second", Key: "k"})
			time.Sleep(5 * time.Second)
			got := slices.DeleteFunc(dest.ids()[3*age:], func(id string) bool { return id == "other" })
			if want := []string{"first", "second"}; !slices.Equal(got, want) {
				t.Errorf("with a gap that is %d00 ms old: delivered %v, want %v", age, got, want)
			}
		}
	})
}

// A relay died with the first event of a lane in memory and a later one in the ledger. The next owner reads the log again
// before it claims anything.
func TestOrderOverATakeover(t *testing.T) {
	for name, row := range map[string]relay.Row{
		"parked":    {Seq: 2, Status: relay.StatusPending, Key: "k", OpenLane: true},
		"postponed": {Seq: 2, Status: relay.StatusPending, Key: "k", OpenLane: true, Due: true, NextIn: time.Second},
		"failed":    {Seq: 2, Status: relay.StatusFailed, Attempts: 1, Key: "k", OpenLane: true, Due: true, NextIn: time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, dest := &relaytest.Memory{}, &recorder{}
				store.Enqueue(relay.Event{ID: "a", Key: "k"}, relay.Event{ID: "b", Key: "k"}, relay.Event{ID: "c", Key: "k"})
				lease, _, err := store.Acquire(t.Context(), relay.AcquireRequest{Destination: "d", Owner: "former", TTL: time.Second})
				if err != nil {
					t.Fatal(err)
				}
				died := relay.Settlement{InFlightTo: 10, Rows: []relay.Row{row}}
				if _, err := store.Settle(t.Context(), lease.LeaseID, died); err != nil {
					t.Fatal(err)
				}
				time.Sleep(5 * time.Second)
				stop := startRelay(t, relay.Config{Store: store}, relay.DestinationConfig{Destination: dest})
				defer stop()
				time.Sleep(5 * time.Minute)
				if got, want := dest.ids(), []string{"a", "b", "c"}; !slices.Equal(got, want) {
					t.Errorf("delivered %v, want %v", got, want)
				}
			})
		})
	}
}

// A lane was claimed whose last event is not available yet. Those before it do not wait for it.
func TestClaimedLaneWithOneThatIsNotAvailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &relaytest.Memory{}
		dest := &recorder{answer: func(_ context.Context, d relay.Delivery) relay.Outcome {
			if d.ID == "a" && d.Attempt == 1 {
				return relay.Outcome{Kind: relay.Retry, Code: "HTTP_500"}
			}
			return relay.Outcome{Kind: relay.Published}
		}}
		stop := startRelay(t, relay.Config{Store: store}, relay.DestinationConfig{Destination: dest})
		defer stop()
		store.Enqueue(relay.Event{ID: "a", Key: "k"})
		time.Sleep(100 * time.Millisecond)
		store.Enqueue(relay.Event{ID: "b", Key: "k"}, relay.Event{ID: "c", Key: "k"},
			relay.Event{ID: "d", Key: "k", AvailableIn: time.Minute})
		time.Sleep(30 * time.Second)
		if got, want := dest.ids(), []string{"a", "a", "b", "c"}; !slices.Equal(got, want) {
			t.Errorf("delivered %v, want %v", got, want)
		}
		time.Sleep(time.Minute)
		if got, want := dest.ids(), []string{"a", "a", "b", "c", "d"}; !slices.Equal(got, want) {
			t.Errorf("delivered %v, want %v", got, want)
		}
	})
}

// The last numbers of the log were rolled back, so isolation cannot read up to them. It ends all the same.
func TestIsolationEndsBeforeNumbersThatAreLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, dest := &relaytest.Memory{}, &recorder{}
		store.Enqueue(relay.Event{ID: "a"})
		lost := store.Begin()
		lost.Insert(relay.Event{ID: "lost"})
		lost.Rollback()
		for range relay.IsolateAfter {
			former := relay.AcquireRequest{Destination: "d", Owner: "former", TTL: time.Second}
			if _, ok, err := store.Acquire(t.Context(), former); err != nil || !ok {
				t.Fatal(ok, err)
			}
			time.Sleep(2 * time.Second)
		}
		former, _, err := store.Acquire(t.Context(), relay.AcquireRequest{Destination: "d", Owner: "former", TTL: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		died := relay.Settlement{InFlightTo: 10, CrashCount: former.CrashCount}
		if _, err := store.Settle(t.Context(), former.LeaseID, died); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		stop := startRelay(t, relay.Config{Store: store}, relay.DestinationConfig{Destination: dest})
		defer stop()
		time.Sleep(time.Minute)
		if cursor, _ := store.Cursor("d"); cursor.CrashCount != 0 {
			t.Errorf("the crash count is %d after a minute, want 0", cursor.CrashCount)
		}
		if got, want := dest.ids(), []string{"a"}; !slices.Equal(got, want) {
			t.Errorf("delivered %v, want %v", got, want)
		}
	})
}

// More lanes are held than a takeover can list. When those are free, the rest is listed, and reading goes on.
func TestMoreHeldLanesThanCanBeListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, dest := &relaytest.Memory{}, &recorder{}
		former, _, err := store.Acquire(t.Context(), relay.AcquireRequest{Destination: "d", Owner: "former", TTL: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		var s relay.Settlement
		for _, key := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i"} {
			seq := store.Enqueue(relay.Event{ID: key, Key: key})[0]
			s.Position, s.InFlightTo = seq, seq
			s.Rows = append(s.Rows, relay.Row{Seq: seq, Status: relay.StatusFailed, Attempts: 1, Key: key, OpenLane: true, Due: true,
				NextIn: time.Duration(seq) * 10 * time.Second})
		}
		if _, err := store.Settle(t.Context(), former.LeaseID, s); err != nil {
			t.Fatal(err)
		}
		store.Enqueue(relay.Event{ID: "new", Key: "i"})
		time.Sleep(2 * time.Second)
		stop := startRelay(t, relay.Config{Store: store}, relay.DestinationConfig{Destination: dest, MaxHeldLanes: 2})
		defer stop()
		time.Sleep(10 * time.Minute)
		if got, want := dest.ids(), []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "new"}; !slices.Equal(got, want) {
			t.Errorf("delivered %v, want %v", got, want)
		}
	})
}

// batches takes several deliveries at once.
type batches struct{ *recorder }

func (batches) MaxBatch() int { return 10 }

// A batch must not carry what an event before it in the same batch may come to hold.
func TestHoldWithinABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &relaytest.Memory{}
		dest := batches{&recorder{answer: func(_ context.Context, d relay.Delivery) relay.Outcome {
			if d.ID == "poison" {
				return relay.Outcome{Kind: relay.Reject, Code: "HTTP_422"}
			}
			return relay.Outcome{Kind: relay.Published}
		}}}
		stop := startRelay(t, relay.Config{Store: store}, relay.DestinationConfig{Destination: dest, OnQuarantine: relay.Hold})
		defer stop()
		store.Enqueue(relay.Event{ID: "poison", Key: "k"}, relay.Event{ID: "later", Key: "k"}, relay.Event{ID: "other", Key: "l"})
		time.Sleep(time.Minute)
		got := dest.ids()
		slices.Sort(got)
		if want := []string{"other", "poison"}; !slices.Equal(got, want) {
			t.Errorf("delivered %v, want %v", got, want)
		}
	})
}

// Without a ledger nothing tells the next owner what was published above the position, unless a clean stop writes it down.
func TestNoLedgerAtACleanStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &relaytest.Memory{}
		slow := &recorder{answer: func(ctx context.Context, d relay.Delivery) relay.Outcome {
			if d.ID == "slow" {
				<-ctx.Done()
				return relay.Outcome{Kind: relay.Released}
			}
			return relay.Outcome{Kind: relay.Published}
		}}
		stop := startRelay(t, relay.Config{Store: store, Drain: time.Second},
			relay.DestinationConfig{Destination: slow, NoLedger: true})
		store.Enqueue(relay.Event{ID: "slow"}, relay.Event{ID: "quick"})
		time.Sleep(100 * time.Millisecond)
		stop()
		dest := &recorder{}
		stop = startRelay(t, relay.Config{Store: store}, relay.DestinationConfig{Destination: dest, NoLedger: true})
		time.Sleep(time.Minute)
		stop()
		if got, want := dest.ids(), []string{"slow"}; !slices.Equal(got, want) {
			t.Errorf("the next owner delivered %v, want %v", got, want)
		}
	})
}

// Two events end the process that delivers them. Each is found, whichever is tried first: their attempts are not used up by
// forgetting the one over the other.
func TestTwoEventsThatEndTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &relaytest.Memory{}
		store.Enqueue(relay.Event{ID: "killer a"}, relay.Event{ID: "innocent"}, relay.Event{ID: "killer b"})
		lives := 0
		for ; lives < 40; lives++ {
			if !liveUntilKilled(t, store) {
				break
			}
		}
		for i, want := range []relay.Status{relay.StatusQuarantined, relay.StatusPublished, relay.StatusQuarantined} {
			if row, _ := store.Delivery("d", int64(i+1)); row.Status != want {
				t.Errorf("delivery %d is %q, want %s", i+1, row.Status, want)
			}
		}
		if most := relay.IsolateAfter + 6; lives > most {
			t.Errorf("it took %d crashes, want at most %d", lives, most)
		}
	})
}

// liveUntilKilled runs a relay until it is killed by an event, or for a minute.
func liveUntilKilled(t *testing.T, store *relaytest.Memory) (killed bool) {
	dead := make(chan struct{})
	kill := sync.OnceFunc(func() { close(dead) })
	alive := func(context.Context, relaytest.Point) error {
		select {
		case <-dead:
			return relaytest.ErrInjected
		default:
			return nil
		}
	}
	dest := &recorder{answer: func(_ context.Context, d relay.Delivery) relay.Outcome {
		if d.ID != "innocent" {
			kill()
		}
		return relay.Outcome{Kind: relay.Published}
	}}
	stop := startRelay(t, relay.Config{Store: relaytest.FaultyStore(store, alive), Lease: 2 * time.Second, Drain: time.Second},
		relay.DestinationConfig{Destination: relaytest.FaultyDestination(dest, alive), Timeout: time.Second})
	defer stop()
	select {
	case <-dead:
		return true
	case <-time.After(time.Minute):
		return false
	}
}

// An owner that stops cleanly before it has sent again what its own predecessor may have sent passes that on.
func TestPossibleDuplicatesOverTwoOwners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, notices := &relaytest.Memory{}, &counter{}
		store.Enqueue(relay.Event{ID: "a"}, relay.Event{ID: "b"})
		former, _, err := store.Acquire(t.Context(), relay.AcquireRequest{Destination: "d", Owner: "former", TTL: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := store.Settle(t.Context(), former.LeaseID, relay.Settlement{InFlightTo: 10}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		down := &recorder{answer: func(context.Context, relay.Delivery) relay.Outcome {
			return relay.Outcome{Kind: relay.Unavailable, Code: "DOWN"}
		}}
		stop := startRelay(t, relay.Config{Store: store}, relay.DestinationConfig{Destination: down})
		time.Sleep(time.Second)
		stop()
		dest := &recorder{}
		stop = startRelay(t, relay.Config{Store: store, Observer: notices}, relay.DestinationConfig{Destination: dest})
		time.Sleep(time.Minute)
		stop()
		if got, want := dest.ids(), []string{"a", "b"}; !slices.Equal(got, want) {
			t.Errorf("delivered %v, want %v", got, want)
		}
		if notices.count() != 2 {
			t.Errorf("%d possible duplicates were noticed, want 2", notices.count())
		}
	})
}

// An owner that dies long before it has come to the end of what its own predecessor may have sent leaves that known.
func TestPossibleDuplicatesFarAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &relaytest.Memory{}
		store.Enqueue(make([]relay.Event, 100)...)
		former, _, err := store.Acquire(t.Context(), relay.AcquireRequest{Destination: "d", Owner: "former", TTL: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := store.Settle(t.Context(), former.LeaseID, relay.Settlement{InFlightTo: 100}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		stuck := &recorder{answer: func(_ context.Context, d relay.Delivery) relay.Outcome {
			if d.Seq > 20 {
				return relay.Outcome{Kind: relay.Unavailable, Code: "DOWN"}
			}
			return relay.Outcome{Kind: relay.Published}
		}}
		stop := startRelay(t, relay.Config{Store: store}, relay.DestinationConfig{Destination: stuck, MaxInFlight: 16})
		defer stop()
		time.Sleep(time.Second)
		if c, _ := store.Cursor("d"); c.Position < 16 || c.Position > 20 || c.InFlightTo < 100 {
			t.Errorf("position %d, in flight to %d; want it at most at 20, and 100 still known", c.Position, c.InFlightTo)
		}
	})
}

// routed sends everything to one endpoint of several, with one call at a time.
type routed struct{ *recorder }

func (routed) Endpoint(*relay.Event) string { return "x" }
func (routed) Several() bool                { return true }
func (routed) EndpointLimit(string) int     { return 1 }

// While a claim is under way that takes the later event of a lane, the earlier one is parked, because its endpoint is silent and
// the memory is full.
func TestOrderOverAClaimUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &relaytest.Memory{}
		dest := routed{&recorder{answer: func(_ context.Context, d relay.Delivery) relay.Outcome {
			if d.ID == "busy" {
				time.Sleep(3 * time.Second)
			}
			return relay.Outcome{Kind: relay.Published}
		}}}
		slow := func(_ context.Context, at relaytest.Point) error {
			if row, _ := store.Delivery("d", 3); at == relaytest.AfterClaim && row.Status == relay.StatusPublishing {
				time.Sleep(1500 * time.Millisecond)
			}
			return nil
		}
		stop := startRelay(t, relay.Config{Store: relaytest.FaultyStore(store, slow)},
			relay.DestinationConfig{Destination: dest, MaxInFlight: 8})
		defer stop()
		store.Enqueue(relay.Event{ID: "busy"}, relay.Event{ID: "a", Key: "k"},
			relay.Event{ID: "b", Key: "k", AvailableIn: time.Second}, relay.Event{ID: "1"}, relay.Event{ID: "2"}, relay.Event{ID: "3"},
			relay.Event{ID: "4"})
		time.Sleep(1100 * time.Millisecond)
		store.Enqueue(relay.Event{ID: "5"})
		time.Sleep(time.Minute)
		got := slices.DeleteFunc(dest.ids(), func(id string) bool { return id != "a" && id != "b" })
		if want := []string{"a", "b"}; !slices.Equal(got, want) {
			t.Errorf("delivered %v, want %v", got, want)
		}
	})
}

// A breach of contract is read while its lane waits behind others. It must not hold the lane before those have had their turn.
func TestBreachInALaneThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &relaytest.Memory{}
		dest := &recorder{answer: func(_ context.Context, d relay.Delivery) relay.Outcome {
			time.Sleep(time.Second)
			if d.ID == "a" && d.Attempt == 1 {
				return relay.Outcome{Kind: relay.Retry, Code: "HTTP_500"}
			}
			return relay.Outcome{Kind: relay.Published}
		}}
		contract := func(e *relay.Event) *relay.Outcome {
			if e.ID == "breach" {
				return &relay.Outcome{Code: "SCHEMA_INVALID"}
			}
			return nil
		}
		stop := startRelay(t, relay.Config{Store: store},
			relay.DestinationConfig{Destination: dest, OnQuarantine: relay.Hold, Contract: contract})
		defer stop()
		store.Enqueue(relay.Event{ID: "a", Key: "k"})
		time.Sleep(2500 * time.Millisecond) // a has failed and is tried again: its lane waits behind it
		store.Enqueue(relay.Event{ID: "b", Key: "k"}, relay.Event{ID: "breach", Key: "k"}, relay.Event{ID: "c", Key: "k"})
		time.Sleep(time.Minute)
		if got, want := dest.ids(), []string{"a", "a", "b"}; !slices.Equal(got, want) {
			t.Errorf("delivered %v, want %v", got, want)
		}
		if row, _ := store.Delivery("d", 3); row.Status != relay.StatusQuarantined || !row.OpenLane {
			t.Errorf("the breach is %+v, want it quarantined and holding its lane", row)
		}
		if err := store.Discard("d", 3); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if got, want := dest.ids(), []string{"a", "a", "b", "c"}; !slices.Equal(got, want) {
			t.Errorf("delivered %v, want %v", got, want)
		}
	})
}
