package relay_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pillarbox-dev/pillarbox/relay"
	"github.com/pillarbox-dev/pillarbox/relay/relaytest"
)

// script is a destination that answers as told and records what it was given.
type script struct {
	mu     sync.Mutex
	answer func(d relay.Delivery) relay.Outcome // nil: published
	takes  time.Duration
	got    []relay.Delivery
	batch  int
}

func (s *script) Deliver(ctx context.Context, batch []relay.Delivery) []relay.Outcome {
	if s.takes > 0 {
		select {
		case <-time.After(s.takes):
		case <-ctx.Done():
		}
	}
	out := make([]relay.Outcome, len(batch))
	for i, d := range batch {
		s.mu.Lock()
		s.got = append(s.got, d)
		answer := s.answer
		s.mu.Unlock()
		out[i] = relay.Outcome{Kind: relay.Published, Receipt: "ok"}
		if answer != nil {
			out[i] = answer(d)
		}
	}
	return out
}

func (s *script) MaxBatch() int { return max(1, s.batch) }

func (s *script) answers(f func(d relay.Delivery) relay.Outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = f
}

func (s *script) deliveries() []relay.Delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.got)
}

func (s *script) ids() (ids []string) {
	for _, d := range s.deliveries() {
		ids = append(ids, d.ID)
	}
	return ids
}

// routed adds endpoints by the part of the key before the slash.
type routed struct{ *script }

func (routed) Endpoint(e *relay.Event) string {
	endpoint, _, _ := strings.Cut(e.Key, "/")
	return endpoint
}

func (routed) Several() bool            { return true }
func (routed) EndpointLimit(string) int { return 4 }

// lone could have endpoints, like destination/http, and has one.
type lone struct{ *script }

func (lone) Endpoint(*relay.Event) string { return "" }
func (lone) Several() bool                { return false }

// notices counts what a relay notices.
type notices struct {
	relay.Unobserved
	mu    sync.Mutex
	count map[relay.NoticeKind]int
}

func (o *notices) Noticed(_ string, n relay.Notice) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.count[n.Kind]++
}

// harness runs relays over a store in memory, in a bubble of virtual time.
type harness struct {
	t     *testing.T
	store *relaytest.Memory
	dest  *script
	n     int
}

func bubble(t *testing.T, f func(h *harness)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f(&harness{t: t, store: &relaytest.Memory{}, dest: &script{}})
	})
}

// start runs a relay until the returned func is called.
func (h *harness) start(change func(*relay.DestinationConfig)) (stop func()) {
	h.t.Helper()
	d := relay.DestinationConfig{Name: "d", Destination: h.dest}
	if change != nil {
		change(&d)
	}
	h.n++
	r, err := relay.New(relay.Config{Store: h.store, Owner: fmt.Sprintf("relay-%d", h.n), Destinations: []relay.DestinationConfig{d},
		Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		h.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(h.t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	return func() {
		h.t.Helper()
		cancel()
		if err := <-done; err != nil {
			h.t.Errorf("Run() = %v", err)
		}
	}
}

func (h *harness) commit(key string, ids ...string) {
	for _, id := range ids {
		h.store.Enqueue(relay.Event{ID: id, Topic: "t", Type: "T", Key: key})
	}
}

// wait lets virtual time pass.
func (h *harness) wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// statuses lists the delivery rows as id:STATUS/attempts/code.
func (h *harness) statuses() (all []string) {
	ids := map[int64]string{}
	for _, e := range h.store.Events() {
		ids[e.Seq] = e.ID
	}
	for _, r := range h.store.Deliveries("d") {
		s := fmt.Sprintf("%s:%s/%d", ids[r.Seq], r.Status, r.Attempts)
		if r.ErrorCode != "" {
			s += "/" + r.ErrorCode
		}
		all = append(all, s)
	}
	return all
}

func (h *harness) want(what string, got []string, want ...string) {
	h.t.Helper()
	if !slices.Equal(got, want) {
		h.t.Errorf("%s = %v, want %v", what, got, want)
	}
}

func TestRelayDeliversInOrderAndStopsCleanly(t *testing.T) {
	bubble(t, func(h *harness) {
		stop := h.start(nil)
		h.commit("k", "a", "b")
		h.wait(time.Second)
		h.commit("k", "c")
		h.wait(time.Second)
		stop()
		h.want("delivered", h.dest.ids(), "a", "b", "c")
		h.want("rows", h.statuses(), "a:PUBLISHED/1", "b:PUBLISHED/1", "c:PUBLISHED/1")
		c, _ := h.store.Cursor("d")
		if c.Position != 3 || c.InFlightTo != 3 || c.Owner != "" {
			t.Errorf("cursor after a clean stop = %+v, want position and in_flight_to 3, no owner", c)
		}
	})
}

func TestRelayRetriesInLaneOrderAndLeavesOthersAlone(t *testing.T) {
	bubble(t, func(h *harness) {
		var failures int
		h.dest.answers(func(d relay.Delivery) relay.Outcome {
			if d.ID == "a1" && failures < 3 {
				failures++
				return relay.Outcome{Code: "HTTP_500"}
			}
			return relay.Outcome{Kind: relay.Published}
		})
		h.commit("a", "a1", "a2")
		h.commit("b", "b1")
		h.commit("", "x")
		stop := h.start(nil)
		h.wait(500 * time.Millisecond)
		h.want("rows", h.statuses(), "a1:FAILED/1/HTTP_500", "a2:PENDING/0", "b1:PUBLISHED/1", "x:PUBLISHED/1")
		h.commit("a", "a3")
		h.wait(time.Minute)
		h.want("rows", h.statuses(), "a1:PUBLISHED/4", "a2:PUBLISHED/1", "b1:PUBLISHED/1", "x:PUBLISHED/1", "a3:PUBLISHED/1")
		stop()
		h.want("lane a", slices.DeleteFunc(h.dest.ids(), func(id string) bool { return id[0] != 'a' }), "a1", "a1", "a1", "a1", "a2", "a3")
	})
}

func TestRelayQuarantinesARejectAndGoesOn(t *testing.T) {
	bubble(t, func(h *harness) {
		h.dest.answers(func(d relay.Delivery) relay.Outcome {
			if d.ID == "a1" {
				return relay.Outcome{Kind: relay.Reject, Code: "HTTP_422"}
			}
			return relay.Outcome{Kind: relay.Published}
		})
		h.commit("a", "a1", "a2")
		stop := h.start(nil)
		h.wait(time.Minute)
		stop()
		h.want("rows", h.statuses(), "a1:QUARANTINED/1/HTTP_422", "a2:PUBLISHED/1")
	})
}

func TestRelayHoldsALaneBehindAQuarantinedHead(t *testing.T) {
	hold := func(d *relay.DestinationConfig) { d.OnQuarantine = relay.Hold }
	bubble(t, func(h *harness) {
		h.dest.answers(func(d relay.Delivery) relay.Outcome {
			if d.ID == "a1" {
				return relay.Outcome{Kind: relay.Reject, Code: "HTTP_422"}
			}
			return relay.Outcome{Kind: relay.Published}
		})
		h.commit("a", "a1", "a2")
		stop := h.start(hold)
		h.wait(time.Minute)
		h.want("rows", h.statuses(), "a1:QUARANTINED/1/HTTP_422", "a2:PENDING/0")
		stop()
		stop = h.start(hold) // a restart does not forget it
		h.commit("a", "a3")
		h.wait(time.Minute)
		h.want("rows", h.statuses(), "a1:QUARANTINED/1/HTTP_422", "a2:PENDING/0", "a3:PENDING/0")
		if err := h.store.Discard("d", 1); err != nil {
			t.Fatal(err)
		}
		h.wait(time.Minute)
		h.want("rows", h.statuses(), "a1:DISCARDED/1/HTTP_422", "a2:PUBLISHED/1", "a3:PUBLISHED/1")
		stop()
	})
}

// What was published has lost its endpoint. Set going again it goes where the event would go now, in order per key, also over a
// delivery that fails, an endpoint that is down, and a restart.
// The lane that a replayed delivery is found in is not its own. It is not held by it any more when the delivery has found its endpoint.
func TestRelayFreesTheLaneOfWhatIsReplayed(t *testing.T) {
	bubble(t, func(h *harness) {
		change := func(d *relay.DestinationConfig) { d.Destination, d.MaxHeldLanes = routed{h.dest}, 1 }
		h.commit("x/a", "a1", "a2")
		stop := h.start(change)
		h.wait(time.Minute)
		stop()
		for seq := range int64(2) {
			if err := h.store.Replay("d", seq+1); err != nil {
				t.Fatal(err)
			}
		}
		stop = h.start(change)
		h.wait(time.Minute)
		h.commit("x/b", "b1") // with the lane held, nothing new would be read
		h.wait(time.Minute)
		stop()
		h.want("deliveries", h.dest.ids(), "a1", "a2", "a1", "a2", "b1")
	})
}

// What is parked behind a replayed delivery is not overtaken by what is new, whenever the replay comes.
func TestRelayKeepsOrderBehindWhatIsReplayed(t *testing.T) {
	for step := range 20 {
		bubble(t, func(h *harness) {
			h.commit("x/a", "a1")
			stop := h.start(func(d *relay.DestinationConfig) { d.Destination = routed{h.dest} })
			h.wait(time.Second)
			h.dest.answers(func(relay.Delivery) relay.Outcome { return relay.Outcome{Kind: relay.Unavailable, Code: "DIAL"} })
			h.commit("x/a", "a2", "a3")
			h.wait(time.Second / 2)
			h.dest.answers(nil)
			before := len(h.dest.deliveries())
			h.wait(time.Duration(step) * 100 * time.Millisecond)
			if err := h.store.Replay("d", 1); err != nil {
				t.Fatal(err)
			}
			for i := range 300 {
				h.commit("x/a", fmt.Sprint("new", i))
				h.wait(10 * time.Millisecond)
			}
			h.wait(time.Minute)
			stop()
			last := int64(0)
			for _, d := range h.dest.deliveries()[before:] {
				if d.ID == "a1" {
					continue // it has lost its place
				}
				if d.Seq < last {
					h.t.Fatalf("replayed after %d00 ms: %s (%d) came after %d", step, d.ID, d.Seq, last)
				}
				last = d.Seq
			}
			if last != 303 {
				t.Errorf("replayed after %d00 ms: the last is %d, want 303", step, last)
			}
		})
	}
}

// The same with one endpoint: a replay while a new owner takes up what is parked.
func TestRelayKeepsOrderBehindWhatIsReplayedToOneEndpoint(t *testing.T) {
	bubble(t, func(h *harness) {
		former, _, err := h.store.Acquire(h.t.Context(), relay.AcquireRequest{Destination: "d", Owner: "former", TTL: time.Minute})
		if err != nil {
			h.t.Fatal(err)
		}
		s := relay.Settlement{Number: 1, Position: 41, InFlightTo: 41, Published: []relay.Receipt{{Seq: 1}}}
		for seq := range int64(41) {
			h.commit("k", fmt.Sprint("e", seq+1))
			if seq > 0 {
				s.Rows = append(s.Rows, relay.Row{Seq: seq + 1, Status: relay.StatusPending, Key: "k", OpenLane: true})
			}
		}
		if _, err := h.store.Settle(h.t.Context(), former.LeaseID, s); err != nil {
			h.t.Fatal(err)
		}
		if err := h.store.Release(h.t.Context(), former.LeaseID); err != nil {
			h.t.Fatal(err)
		}
		h.dest.takes = 10 * time.Millisecond
		stop := h.start(func(d *relay.DestinationConfig) { d.MaxInFlight = 20 })
		h.wait(100 * time.Millisecond)
		if err := h.store.Replay("d", 1); err != nil {
			h.t.Fatal(err)
		}
		for i := range 50 {
			h.commit("k", fmt.Sprint("new", i))
			h.wait(20 * time.Millisecond)
		}
		h.wait(time.Minute)
		stop()
		last := int64(1)
		for _, d := range h.dest.deliveries() {
			if d.ID == "e1" {
				continue // it has lost its place
			}
			if d.Seq != last+1 {
				h.t.Fatalf("%s (%d) came after %d", d.ID, d.Seq, last)
			}
			last = d.Seq
		}
		if last != 91 {
			h.t.Errorf("the last is %d, want 91", last)
		}
	})
}

// A replayed delivery that is put aside stands before the one that failed meanwhile: neither waits for the other.
func TestRelayGoesOnBehindWhatIsReplayedAndParked(t *testing.T) {
	bubble(t, func(h *harness) {
		h.commit("k", "e1")
		stop := h.start(func(d *relay.DestinationConfig) { d.MaxInFlight = 9 })
		h.wait(time.Second)
		var failed atomic.Bool
		h.dest.answers(func(d relay.Delivery) relay.Outcome {
			time.Sleep(3 * time.Second)
			if d.ID == "e2" && failed.CompareAndSwap(false, true) {
				return relay.Outcome{Kind: relay.Retry, Code: "HTTP_500"}
			}
			return relay.Outcome{Kind: relay.Published}
		})
		h.commit("k", "e2", "e3", "e4")
		h.wait(100 * time.Millisecond)
		if err := h.store.Replay("d", 1); err != nil {
			h.t.Fatal(err)
		}
		h.wait(1400 * time.Millisecond) // it is claimed, and waits behind the others
		for i := range 5 {
			h.commit(fmt.Sprint("x", i), fmt.Sprint("x", i)) // and is parked when the memory is full
		}
		h.wait(5 * time.Minute)
		stop()
		for _, row := range h.store.Deliveries("d") {
			if row.Status != relay.StatusPublished {
				h.t.Errorf("%d is %s after %d attempts, want it published", row.Seq, row.Status, row.Attempts)
			}
		}
	})
}

func TestRelayRoutesWhatIsReplayed(t *testing.T) {
	bubble(t, func(h *harness) {
		route := func(d *relay.DestinationConfig) {
			d.Destination = routed{h.dest}
			d.Retry = relay.RetryPolicy{Base: time.Second, Jitter: -1}
		}
		h.commit("x/a", "a1", "a2", "a3")
		h.commit("y/b", "b1")
		h.commit("", "c1") // to the endpoint without a name
		stop := h.start(route)
		h.wait(time.Minute)
		before := len(h.dest.deliveries())
		var fails atomic.Int32
		h.dest.answers(func(d relay.Delivery) relay.Outcome {
			switch {
			case d.Endpoint == "y":
				return relay.Outcome{Kind: relay.Unavailable, Code: "DIAL"}
			case d.ID == "a1" && fails.Add(1) <= 2:
				return relay.Outcome{Kind: relay.Retry, Code: "HTTP_503"}
			}
			return relay.Outcome{Kind: relay.Published}
		})
		for seq := int64(1); seq <= 5; seq++ {
			if err := h.store.Replay("d", seq); err != nil {
				t.Fatal(err)
			}
			h.wait(300 * time.Millisecond)
		}
		stop()
		stop = h.start(route)
		h.wait(time.Minute)
		h.dest.answers(nil)
		h.wait(time.Hour)
		stop()
		h.want("rows", h.statuses(), "a1:PUBLISHED/3", "a2:PUBLISHED/1", "a3:PUBLISHED/1", "b1:PUBLISHED/1", "c1:PUBLISHED/1")
		var lane []string
		for _, d := range h.dest.deliveries()[before:] {
			if want := (routed{}).Endpoint(d.Event); d.Endpoint != want {
				t.Errorf("%s went to %q, want %q", d.ID, d.Endpoint, want)
			}
			if d.Key == "x/a" {
				lane = append(lane, d.ID)
			}
		}
		h.want("the lane", lane, "a1", "a1", "a1", "a2", "a3")
	})
}

func TestRelayOutageChargesNothingAndWritesNothing(t *testing.T) {
	t.Run("no router", func(t *testing.T) { outage(t, nil) })
	t.Run("a router with one endpoint", func(t *testing.T) {
		outage(t, func(h *harness, d *relay.DestinationConfig) { d.Destination = lone{h.dest} })
	})
}

func outage(t *testing.T, change func(*harness, *relay.DestinationConfig)) {
	bubble(t, func(h *harness) {
		h.dest.answers(func(relay.Delivery) relay.Outcome { return relay.Outcome{Kind: relay.Unavailable, Code: "DIAL"} })
		stop := h.start(func(d *relay.DestinationConfig) {
			if change != nil {
				change(h, d)
			}
		})
		for i := range 20 {
			h.commit(fmt.Sprint("k", i%3), fmt.Sprint("e", i))
		}
		h.wait(24 * time.Hour)
		if rows := h.statuses(); len(rows) != 0 {
			t.Errorf("rows during the outage = %v, want none", rows)
		}
		if n := len(h.dest.deliveries()); n < 90 || n > 120 {
			t.Errorf("%d probes in a day, want about one each 15 minutes", n)
		}
		h.dest.answers(nil)
		h.wait(16 * time.Minute)
		stop()
		for i, row := range h.statuses() {
			if want := fmt.Sprintf("e%d:PUBLISHED/1", i); row != want {
				t.Errorf("row = %s, want %s", row, want)
			}
		}
		c, _ := h.store.Cursor("d")
		if c.Position != 20 {
			t.Errorf("position = %d, want 20", c.Position)
		}
	})
}

func TestRelayOneBadEndpointHarmsNobodyElse(t *testing.T) {
	bubble(t, func(h *harness) {
		down := true
		h.dest.answers(func(d relay.Delivery) relay.Outcome {
			if down && d.Endpoint == "bad" {
				return relay.Outcome{Kind: relay.Unavailable, Code: "DIAL"}
			}
			return relay.Outcome{Kind: relay.Published}
		})
		stop := h.start(func(d *relay.DestinationConfig) { d.Destination = routed{h.dest} })
		for i := range 100 {
			h.commit("good/1", fmt.Sprint("g", i))
			h.commit("bad/1", fmt.Sprint("b", i))
		}
		h.wait(time.Hour)
		count := func(prefix, status string) (n int) {
			for _, s := range h.statuses() {
				if s[0] == prefix[0] && strings.Contains(s, status) {
					n++
				}
			}
			return n
		}
		if good, bad := count("g", "PUBLISHED"), count("b", "PENDING/0"); good != 100 || bad != 100 {
			t.Errorf("published on the good endpoint: %d, parked for the bad one: %d; want 100 each", good, bad)
		}
		stop()
		stop = h.start(func(d *relay.DestinationConfig) { d.Destination = routed{h.dest} })
		h.wait(time.Second)
		down = false
		h.commit("bad/1", "b100")
		h.wait(time.Hour)
		stop()
		if n := count("b", "PUBLISHED/1"); n != 101 {
			t.Errorf("%d delivered when the endpoint was back, want 101: %v", n, h.statuses())
		}
		var last int
		for _, d := range h.dest.deliveries() {
			var n int
			if _, err := fmt.Sscanf(d.ID, "b%d", &n); err == nil && n < last {
				t.Fatalf("b%d was delivered after b%d", n, last)
			} else if err == nil {
				last = n
			}
		}
	})
}

func TestRelayTakesOverFromADeadOne(t *testing.T) {
	bubble(t, func(h *harness) {
		lease, ok, err := h.store.Acquire(h.t.Context(), relay.AcquireRequest{Destination: "d", Owner: "dead", TTL: 15 * time.Second})
		if err != nil || !ok {
			t.Fatal(ok, err)
		}
		h.commit("a", "a1", "a2", "a3")
		// The dead one had a2 settled, a1 in flight, and reserved up to 3.
		_, err = h.store.Settle(h.t.Context(), lease.LeaseID, relay.Settlement{Position: 0, InFlightTo: 3, Published: []relay.Receipt{{Seq: 2}}})
		if err != nil {
			t.Fatal(err)
		}
		stop := h.start(nil)
		h.wait(14 * time.Second)
		h.want("delivered within the lease", h.dest.ids())
		h.wait(2 * time.Second)
		h.want("delivered", h.dest.ids(), "a1", "a3")
		if got := h.dest.deliveries(); len(got) == 2 && (!got[0].PossibleDuplicate || !got[1].PossibleDuplicate) {
			t.Errorf("what the dead relay may have sent is not marked: %+v", got)
		}
		stop()
	})
}

func TestRelaySlowDeliveryDoesNotHoldThePosition(t *testing.T) {
	bubble(t, func(h *harness) {
		slow := &slowOne{script: h.dest, id: "s"}
		h.commit("s", "s")
		stop := h.start(func(d *relay.DestinationConfig) { d.Destination = slow })
		for i := range 50 {
			h.commit("k", fmt.Sprint("e", i))
		}
		h.wait(3 * time.Second)
		c, _ := h.store.Cursor("d")
		if c.Position != 51 {
			t.Errorf("position = %d while one delivery is slow, want 51", c.Position)
		}
		if row, _ := h.store.Delivery("d", 1); row.Status != relay.StatusPublishing || row.Attempts != 1 {
			t.Errorf("row of the slow one = %+v, want PUBLISHING", row)
		}
		h.wait(10 * time.Second)
		stop()
		if row, _ := h.store.Delivery("d", 1); row.Status != relay.StatusPublished || row.Attempts != 1 {
			t.Errorf("row of the slow one afterwards = %+v, want PUBLISHED", row)
		}
	})
}

type slowOne struct {
	*script
	id string
}

func (s *slowOne) Deliver(ctx context.Context, batch []relay.Delivery) []relay.Outcome {
	if batch[0].ID == s.id {
		time.Sleep(8 * time.Second)
	}
	return s.script.Deliver(ctx, batch)
}

func TestRelayGuardPausesAStormOfRejects(t *testing.T) {
	bubble(t, func(h *harness) {
		h.dest.answers(func(relay.Delivery) relay.Outcome { return relay.Outcome{Kind: relay.Reject, Code: "HTTP_400"} })
		stop := h.start(func(d *relay.DestinationConfig) { d.Concurrency = 1 })
		for i := range 1000 {
			h.commit("", fmt.Sprint("e", i))
		}
		h.wait(time.Hour)
		if n := len(h.statuses()); n != 20 {
			t.Errorf("%d rows, want 20 quarantined and then a pause", n)
		}
		c, _ := h.store.Cursor("d")
		if !strings.HasPrefix(c.Pause.Reason, relay.CodeRejectStorm) {
			t.Errorf("pause = %+v, want the guard's", c.Pause)
		}
		h.dest.answers(nil)
		if err := h.store.SetPause("d", relay.Pause{}); err != nil {
			t.Fatal(err)
		}
		h.wait(time.Minute)
		stop()
		if n := len(h.statuses()); n != 1000 {
			t.Errorf("%d rows after the resume, want 1000", n)
		}
	})
}

// The guard leaves one of several endpoints alone but for a probe: each costs one event, not another storm.
func TestRelayGuardProbesAStormOfRejects(t *testing.T) {
	bubble(t, func(h *harness) {
		h.dest.answers(func(relay.Delivery) relay.Outcome { return relay.Outcome{Kind: relay.Reject, Code: "HTTP_400"} })
		for i := range 500 {
			h.commit(fmt.Sprint("a/", i), fmt.Sprint("e", i))
		}
		stop := h.start(func(d *relay.DestinationConfig) { d.Destination = routed{h.dest} })
		h.wait(time.Minute)
		storm := len(h.dest.deliveries())
		h.wait(time.Hour)
		if n := len(h.dest.deliveries()) - storm; n < 10 || n > 12 {
			t.Errorf("%d events were rejected within an hour after the storm of %d, want one every 5 minutes", n, storm)
		}
		h.dest.answers(nil)
		h.wait(10 * time.Minute)
		stop()
		if n := len(h.dest.deliveries()); n != 500 {
			t.Errorf("%d deliveries when the storm is over, want all 500", n)
		}
	})
}

// An endpoint that says for each event that it is gone is paused, and nobody is told that it is back.
func TestRelayIsNotBackWhileItIsGone(t *testing.T) {
	bubble(t, func(h *harness) {
		h.dest.answers(func(relay.Delivery) relay.Outcome {
			return relay.Outcome{Kind: relay.Reject, Code: "HTTP_410_GONE", Pause: true}
		})
		h.commit("", "e1", "e2", "e3", "e4")
		o := &notices{count: map[relay.NoticeKind]int{}}
		r, err := relay.New(relay.Config{Store: h.store, Owner: "o", Observer: o, Logger: slog.New(slog.DiscardHandler),
			Destinations: []relay.DestinationConfig{{Name: "d", Destination: h.dest, Concurrency: 1}}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(h.t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		h.wait(12 * time.Minute)
		cancel()
		<-done
		if n := len(h.dest.deliveries()); n != 3 {
			t.Errorf("%d deliveries in 12 minutes, want the first and two probes", n)
		}
		if opened, closed := o.count[relay.NoticeBreakerOpen], o.count[relay.NoticeBreakerClosed]; opened != 1 || closed != 0 {
			t.Errorf("the breaker opened %d times and closed %d times, want once and never", opened, closed)
		}
	})
}

// A takeover at the bound of the gaps reads nothing but gaps for a while. That is no look at what the former owner had in flight.
func TestRelayTakesOverWithAllGaps(t *testing.T) {
	bubble(t, func(h *harness) {
		long := h.store.Begin()
		long.TakeXID() // no gap is proved dead
		h.store.Enqueue(make([]relay.Event, 500)...)
		for range relay.MaxGaps + 500 {
			tx := h.store.Begin()
			tx.Insert(relay.Event{})
			tx.Rollback()
			h.store.Enqueue(relay.Event{})
		}
		h.dest.batch = 100
		life, kill := context.WithCancelCause(h.t.Context())
		arrived := map[int64]bool{}
		h.dest.takes = 20 * time.Millisecond // so that each call is settled before the next one ends
		h.dest.answers(func(d relay.Delivery) relay.Outcome {
			if arrived[d.Seq] = true; d.Seq == 2*relay.MaxGaps+900 {
				kill(errors.New("killed"))
			}
			return relay.Outcome{Kind: relay.Published}
		})
		run := func(store relay.Store, owner string) (stop func()) {
			r, err := relay.New(relay.Config{Store: store, Owner: owner, Logger: slog.New(slog.DiscardHandler),
				Destinations: []relay.DestinationConfig{{Name: "d", Destination: h.dest, Concurrency: 1}}})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(h.t.Context())
			done := make(chan error, 1)
			go func() { done <- r.Run(ctx) }()
			return func() { cancel(); <-done }
		}
		first := run(mortal{h.store, life}, "first")
		<-life.Done()
		first()
		if c, _ := h.store.Cursor("d"); len(c.Gaps) < relay.MaxGaps || !arrived[c.Position+1] {
			h.t.Fatalf("the first left %d gaps up to %d, want all of them and something in flight", len(c.Gaps), c.Position)
		}
		h.dest.answers(func(d relay.Delivery) relay.Outcome {
			if arrived[d.Seq] && !d.PossibleDuplicate {
				t.Errorf("%d arrived again, and nothing said that it may", d.Seq)
			}
			return relay.Outcome{Kind: relay.Published}
		})
		second := run(h.store, "second")
		h.wait(time.Minute)
		long.Commit()
		h.wait(time.Minute)
		second()
		if n := len(h.store.Deliveries("d")); n != len(h.store.Events()) {
			t.Errorf("%d events are on record, want %d", n, len(h.store.Events()))
		}
	})
}

func TestRelayStopsWhenTheLogWentBack(t *testing.T) {
	bubble(t, func(h *harness) {
		h.commit("a", "a1", "a2")
		stop := h.start(nil)
		h.wait(time.Second)
		stop()
		h.store.Truncate()
		r, err := relay.New(relay.Config{Store: h.store, Owner: "o", Logger: slog.New(slog.DiscardHandler),
			Destinations: []relay.DestinationConfig{{Name: "d", Destination: h.dest}}})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Run(h.t.Context()); !errors.Is(err, relay.ErrLogReset) || !strings.Contains(err.Error(), "outbox_cursor") {
			t.Errorf("Run() = %v, want ErrLogReset with a hint", err)
		}
	})
}

// Who wants one event after the other, and nothing read ahead, gets it.
func TestRelayWithRoomForAFew(t *testing.T) {
	for most := range 4 {
		bubble(t, func(h *harness) {
			h.commit("a", "1", "2")
			h.commit("", "3", "4", "5")
			stop := h.start(func(d *relay.DestinationConfig) { d.MaxInFlight = most + 1 })
			h.wait(time.Minute)
			stop()
			if n := len(h.dest.deliveries()); n != 5 {
				t.Errorf("with room for %d: %d deliveries, want 5", most+1, n)
			}
		})
	}
}

func TestRelayAvailableAtHoldsItsLane(t *testing.T) {
	bubble(t, func(h *harness) {
		h.store.Enqueue(relay.Event{ID: "a1", Topic: "t", Type: "T", Key: "a", AvailableIn: time.Hour})
		h.commit("a", "a2")
		h.commit("b", "b1")
		stop := h.start(nil)
		h.wait(59 * time.Minute)
		h.want("delivered", h.dest.ids(), "b1")
		h.wait(2 * time.Minute)
		stop()
		h.want("delivered", h.dest.ids(), "b1", "a1", "a2")
	})
}

func TestRelayExhaustsAttempts(t *testing.T) {
	bubble(t, func(h *harness) {
		h.dest.answers(func(relay.Delivery) relay.Outcome { return relay.Outcome{Code: "HTTP_500", Message: "no"} })
		h.commit("a", "a1")
		stop := h.start(func(d *relay.DestinationConfig) { d.Retry.MaxAttempts = 3 })
		h.wait(time.Hour)
		stop()
		h.want("rows", h.statuses(), "a1:QUARANTINED/3/EXHAUSTED")
		if row, _ := h.store.Delivery("d", 1); !strings.Contains(row.ErrorMessage, "HTTP_500 no") {
			t.Errorf("message = %q, want the last error in it", row.ErrorMessage)
		}
	})
}

// lethal kills its relay, as far as the store and the destination can tell, when it is handed a certain event.
type lethal struct {
	*script
	id   string
	kill context.CancelCauseFunc
}

func (l *lethal) Deliver(ctx context.Context, batch []relay.Delivery) []relay.Outcome {
	for _, d := range batch {
		if d.ID == l.id {
			l.kill(errors.New("killed"))
			<-ctx.Done()
			return nil
		}
	}
	return l.script.Deliver(ctx, batch)
}

// mortal is a store that no longer answers when its relay is dead.
type mortal struct {
	*relaytest.Memory
	life context.Context
}

func (m mortal) Settle(ctx context.Context, l relay.LeaseID, s relay.Settlement) (relay.Settled, error) {
	if m.life.Err() != nil {
		return relay.Settled{}, m.life.Err()
	}
	return m.Memory.Settle(ctx, l, s)
}

func (m mortal) Release(ctx context.Context, l relay.LeaseID) error {
	if m.life.Err() != nil {
		return m.life.Err()
	}
	return m.Memory.Release(ctx, l)
}

func TestRelayFindsTheEventThatKillsIt(t *testing.T) {
	bubble(t, func(h *harness) {
		h.commit("", "a", "b", "poison", "c", "d")
		for generation := 0; generation < 8; generation++ {
			life, kill := context.WithCancelCause(h.t.Context())
			r, err := relay.New(relay.Config{
				Store: mortal{h.store, life}, Owner: fmt.Sprint("relay-", generation), Logger: slog.New(slog.DiscardHandler),
				Destinations: []relay.DestinationConfig{{
					Name: "d", Destination: &lethal{h.dest, "poison", kill}, Concurrency: 1, Retry: relay.RetryPolicy{MaxAttempts: 100},
				}},
			})
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(h.t.Context())
			done := make(chan error, 1)
			go func() { done <- r.Run(ctx) }()
			select {
			case <-life.Done():
			case <-time.After(2 * time.Minute):
			}
			stop()
			if err := <-done; err != nil {
				t.Errorf("Run() = %v", err)
			}
			kill(nil)
			time.Sleep(time.Minute) // the lease runs out
		}
		h.want("rows", h.statuses(), "a:PUBLISHED/1", "b:PUBLISHED/1", "poison:QUARANTINED/1/CRASHED_RELAY", "c:PUBLISHED/1", "d:PUBLISHED/1")
		c, _ := h.store.Cursor("d")
		if c.CrashCount != 0 || c.Position != 5 {
			t.Errorf("cursor = %+v, want position 5 and no crashes counted any more", c)
		}
	})
}

// When max_attempts is less than it was, what has failed as often is given up for that: no process ended over it.
func TestRelayWithFewerAttemptsThanBefore(t *testing.T) {
	bubble(t, func(h *harness) {
		h.dest.answers(func(relay.Delivery) relay.Outcome { return relay.Outcome{Kind: relay.Retry, Code: "HTTP_500"} })
		h.commit("k", "a")
		stop := h.start(func(d *relay.DestinationConfig) {
			d.Retry.Delays = []time.Duration{time.Second, time.Second, time.Second, time.Second, time.Second, 5 * time.Minute}
		})
		h.wait(time.Minute)
		stop()
		h.want("rows", h.statuses(), "a:FAILED/6/HTTP_500")
		h.commit("k", "b")
		h.dest.answers(nil)
		stop = h.start(func(d *relay.DestinationConfig) { d.Retry.MaxAttempts = 3 })
		h.wait(10 * time.Minute)
		stop()
		h.want("rows", h.statuses(), "a:QUARANTINED/6/EXHAUSTED", "b:PUBLISHED/1")
		if row, _ := h.store.Delivery("d", 1); !strings.Contains(row.ErrorMessage, "HTTP_500") {
			t.Errorf("message %q, want it to name the last error", row.ErrorMessage)
		}
	})
}

func TestRelayParksWhatFillsItsMemory(t *testing.T) {
	bubble(t, func(h *harness) {
		h.dest.takes = 100 * time.Millisecond
		stop := h.start(func(d *relay.DestinationConfig) { d.MaxInFlight, d.Concurrency = 100, 4 })
		for i := range 500 { // one hot key, at ten a second
			h.commit("hot", fmt.Sprint("h", i))
		}
		h.commit("cool", "c")
		h.wait(10 * time.Second)
		if !slices.Contains(h.dest.ids(), "c") {
			t.Error("a hot key kept another one waiting for 10 s")
		}
		h.wait(time.Minute)
		stop()
		if n := len(h.dest.deliveries()); n != 501 {
			t.Errorf("%d delivered, want 501", n)
		}
		last := -1
		for _, d := range h.dest.deliveries() {
			var n int
			if _, err := fmt.Sscanf(d.ID, "h%d", &n); err == nil {
				if n != last+1 {
					t.Fatalf("h%d came after h%d", n, last)
				}
				last = n
			}
		}
	})
}

func TestRelayQuarantinesABreachOfContractWithoutAnAttempt(t *testing.T) {
	for _, onQuarantine := range []relay.OnQuarantine{relay.Skip, relay.Hold} {
		bubble(t, func(h *harness) {
			h.commit("a", "a1", "bad", "a2")
			stop := h.start(func(d *relay.DestinationConfig) {
				d.OnQuarantine = onQuarantine
				d.Contract = func(e *relay.Event) *relay.Outcome {
					if e.ID == "bad" {
						return &relay.Outcome{Kind: relay.Reject, Code: "SCHEMA_INVALID", Message: "/amount: wants a number"}
					}
					return nil
				}
			})
			h.wait(time.Minute)
			stop()
			if onQuarantine == relay.Skip {
				h.want("delivered", h.dest.ids(), "a1", "a2")
				h.want("rows", h.statuses(), "a1:PUBLISHED/1", "bad:QUARANTINED/0/SCHEMA_INVALID", "a2:PUBLISHED/1")
			} else {
				h.want("delivered", h.dest.ids(), "a1")
				h.want("rows", h.statuses(), "a1:PUBLISHED/1", "bad:QUARANTINED/0/SCHEMA_INVALID", "a2:PENDING/0")
			}
		})
	}
}

// A key or an endpoint that the ledger's indexes do not take is refused before it gets into a lane: its settle would fail for ever.
func TestRelayQuarantinesAKeyThatTheLedgerCannotKeep(t *testing.T) {
	for _, onQuarantine := range []relay.OnQuarantine{relay.Skip, relay.Hold} {
		bubble(t, func(h *harness) {
			long := strings.Repeat("k", relay.MaxKeyLength+1)
			h.dest.answers(func(relay.Delivery) relay.Outcome { return relay.Outcome{Kind: relay.Retry, Code: "HTTP_500"} })
			h.commit(long, "key")
			h.commit(long+"/1", "endpoint")
			h.commit("e/1", "good")
			stop := h.start(func(d *relay.DestinationConfig) {
				d.OnQuarantine, d.Destination = onQuarantine, routed{h.dest}
				d.Retry.MaxAttempts = 2
			})
			h.wait(time.Minute)
			stop()
			h.want("rows", h.statuses(), "key:QUARANTINED/0/KEY_TOO_LONG", "endpoint:QUARANTINED/0/KEY_TOO_LONG",
				"good:QUARANTINED/2/EXHAUSTED")
			for _, row := range h.store.Deliveries("d") {
				if row.OpenLane && len(row.Key) > relay.MaxKeyLength {
					t.Errorf("row %d stands in a lane", row.Seq)
				}
			}
		})
	}
}

// A relay that is paused reads nothing, so producers must not go on waking it: NOTIFY takes a lock that all of them share.
func TestRelayDoesNotSleepWhilePaused(t *testing.T) {
	bubble(t, func(h *harness) {
		asleep := func(when string, want bool) {
			t.Helper()
			if cursor, _ := h.store.Cursor("d"); cursor.Asleep != want {
				t.Errorf("%s: asleep %v, want %v", when, cursor.Asleep, want)
			}
		}
		h.commit("a", "a1")
		stop := h.start(nil)
		h.wait(time.Minute)
		asleep("with nothing to do", true)
		for _, pause := range []relay.Pause{{Reason: "maintenance", By: "me"}, {}} {
			if err := h.store.SetPause("d", pause); err != nil {
				t.Fatal(err)
			}
			h.wait(time.Minute)
			asleep(fmt.Sprintf("after %+v", pause), pause.Reason == "")
		}
		stop()
	})
}
