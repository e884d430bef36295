package ops_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/ops"
	"github.com/pillarbox-dev/pillarbox/outbox/schema"
	"github.com/pillarbox-dev/pillarbox/relay"
	"github.com/pillarbox-dev/pillarbox/store/postgres"
	"github.com/pillarbox-dev/pillarbox/store/sqlite"
)

// picky is a destination that takes everything but what is poisoned, and what is to be tried again later.
type picky struct {
	mu  sync.Mutex
	got []string // ids, in the order in which they were taken
}

func (p *picky) Deliver(_ context.Context, batch []relay.Delivery) []relay.Outcome {
	outcomes := make([]relay.Outcome, len(batch))
	for i, d := range batch {
		if bytes.Contains(d.Payload, []byte("poison")) {
			outcomes[i] = relay.Outcome{Kind: relay.Reject, Code: "HTTP_422", Message: "amount is missing"}
			continue
		}
		if bytes.Contains(d.Payload, []byte("later")) {
			outcomes[i] = relay.Outcome{Kind: relay.Retry, Code: "HTTP_409"}
			continue
		}
		p.mu.Lock()
		p.got = append(p.got, d.ID)
		p.mu.Unlock()
		outcomes[i] = relay.Outcome{Kind: relay.Published, Receipt: "200"}
	}
	return outcomes
}

// taken returns what it took of the ids that begin with a letter.
func (p *picky) taken(letter string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(slices.DeleteFunc(slices.Clone(p.got), func(id string) bool { return id[:1] != letter }), " ")
}

// relay runs a relay to the destination d until the test ends.
func (b *box) relay(p *picky, hold relay.OnQuarantine) {
	b.Helper()
	var store relay.Store
	if b.dialect == schema.Postgres {
		s, err := postgres.Open(b.Context(), postgres.Config{URL: b.address, Schema: b.schema})
		b.must(err)
		b.Cleanup(s.Close)
		store = s
	} else {
		s, err := sqlite.Open(b.Context(), sqlite.Config{Path: b.address})
		b.must(err)
		b.Cleanup(func() { s.Close() })
		store = s
	}
	r, err := relay.New(relay.Config{Store: store, Owner: "r1", Logger: slog.New(slog.DiscardHandler),
		Destinations: []relay.DestinationConfig{{Name: "d", Destination: p, OnQuarantine: hold, Retry: relay.RetryPolicy{Base: time.Hour}}}})
	b.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	b.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			b.Errorf("the relay ended with %v", err)
		}
	})
}

// enqueue adds an event of a key; its id begins with the key.
func (b *box) enqueue(id, payload string) {
	b.Helper()
	b.exec(fmt.Sprintf(`insert into outbox_event (event_id, topic_name, event_type, partition_key, payload)
		values ('%s', 'orders', 'T', '%s', '%s')`, id, id[:1], payload))
}

// until waits for an event to have a status, and returns its delivery.
func (b *box) until(id string, want relay.Status) ops.Delivery {
	b.Helper()
	var e ops.EventDetail
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		var err error
		e, err = b.Show(b.Context(), ops.EventRef{EventID: id})
		b.must(err)
		if len(e.Deliveries) == 1 && e.Deliveries[0].Status == want {
			return e.Deliveries[0]
		}
	}
	b.Fatalf("event %s has not become %s: %+v", id, want, e.Deliveries)
	return ops.Delivery{}
}

// TestPoisonIsRepaired follows an event from its quarantine through an operator's repair to the destination, with a relay that runs
// all the time.
func TestPoisonIsRepaired(t *testing.T) {
	onBoth(t, func(b *box) {
		p := &picky{}
		b.relay(p, relay.Skip)
		b.enqueue("a1", `{"amount":"poison"}`)
		b.enqueue("a2", `{}`)
		seen := b.until("a1", relay.StatusQuarantined)
		b.until("a2", relay.StatusPublished)
		if seen.ErrorCode != "HTTP_422" || seen.Attempts != 1 {
			b.Errorf("quarantined as %+v, want HTTP_422 after 1 attempt", seen)
		}

		_, err := b.Retry(b.Context(), target(seen), ops.Action{By: "ann", Reason: "perhaps they take it now"})
		b.must(err)
		var again ops.Delivery
		for again.Version == "" || again.LastAttemptAt.Equal(*seen.LastAttemptAt) {
			again = b.until("a1", relay.StatusQuarantined)
		}
		if again.Attempts != 1 {
			b.Errorf("after the retry: %d attempts, want to have begun anew", again.Attempts)
		}

		_, err = b.Repair(b.Context(), target(again), ops.Repair{Payload: []byte(`{"amount":1}`)}, ops.Action{By: "bob", Reason: "the amount"})
		b.must(err)
		done := b.until("a1", relay.StatusPublished)
		if done.Receipt != "200" || done.ErrorCode != "" || p.taken("a") != "a2 a1" {
			b.Errorf("published as %+v, taken %s, want a2 a1", done, p.taken("a"))
		}
		e, err := b.Show(b.Context(), ops.EventRef{EventID: "a1"})
		b.must(err)
		var story string
		for _, h := range e.History {
			story += h.Operator + " " + h.Action + " " + h.Reason + "; "
		}
		if want := "bob repair the amount; ann retry perhaps they take it now; "; story != want {
			b.Errorf("the log tells %q, want %q", story, want)
		}
	})
}

// TestAHeldLaneGoesOn: with on_quarantine hold, what comes after a poisoned event of its key waits, and goes on in order once an
// operator has repaired it, or discarded it.
func TestAHeldLaneGoesOn(t *testing.T) {
	onBoth(t, func(b *box) {
		p := &picky{}
		b.relay(p, relay.Hold)
		for _, key := range []string{"a", "b"} {
			b.enqueue(key+"1", `{"amount":"poison"}`)
			b.enqueue(key+"2", `{}`)
			b.enqueue(key+"3", `{}`)
		}
		b.enqueue("c1", `{}`)
		a, bad := b.until("a1", relay.StatusQuarantined), b.until("b1", relay.StatusQuarantined)
		b.until("c1", relay.StatusPublished)
		for _, id := range []string{"a2", "a3", "b2", "b3"} {
			b.until(id, relay.StatusPending)
		}

		_, err := b.Repair(b.Context(), target(a), ops.Repair{Payload: []byte(`{}`)}, ops.Action{By: "ann"})
		b.must(err)
		b.until("a3", relay.StatusPublished)
		if got := p.taken("a"); got != "a1 a2 a3" {
			b.Errorf("after the repair of a1 it took %s, want a1 a2 a3", got)
		}
		if got := p.taken("b"); got != "" {
			b.Errorf("it took %s, and b1 is quarantined still", got)
		}

		_, err = b.Discard(b.Context(), target(bad), ops.Action{By: "ann"})
		b.must(err)
		b.until("b3", relay.StatusPublished)
		b.enqueue("b4", `{}`)
		b.until("b4", relay.StatusPublished)
		if got := p.taken("b"); got != "b2 b3 b4" {
			b.Errorf("after b1 was discarded it took %s, want b2 b3 b4", got)
		}
		if row, want := b.row(bad.Seq), `DISCARDED/1 key - endpoint "" HTTP_422 waits`; row != want {
			b.Errorf("the relay left %s, want %s", row, want)
		}
	})
}

// TestAParkedDeliveryIsDiscarded takes one out of the middle of a held lane.
func TestAParkedDeliveryIsDiscarded(t *testing.T) {
	onBoth(t, func(b *box) {
		p := &picky{}
		b.relay(p, relay.Hold)
		b.enqueue("a1", `{"amount":"poison"}`)
		head := b.until("a1", relay.StatusQuarantined)
		for _, id := range []string{"a2", "a3"} {
			b.enqueue(id, `{}`)
		}
		var waits ops.Delivery
		for waits.Version == "" { // without a row it cannot be acted upon
			waits = b.until("a2", relay.StatusPending)
		}
		_, err := b.Discard(b.Context(), target(waits), ops.Action{By: "ann"})
		b.must(err)
		_, err = b.Repair(b.Context(), target(head), ops.Repair{Payload: []byte(`{}`)}, ops.Action{By: "ann"})
		b.must(err)
		b.until("a3", relay.StatusPublished)
		if got := p.taken("a"); got != "a1 a3" {
			b.Errorf("it took %s, want a1 a3", got)
		}
	})
}

// TestAFailedDeliveryDoesNotWait: an hour lies before the next attempt, and the operator's word counts at once; so it does for what
// waits behind it.
func TestAFailedDeliveryDoesNotWait(t *testing.T) {
	onBoth(t, func(b *box) {
		p := &picky{}
		b.relay(p, relay.Skip)
		for _, key := range []string{"a", "b", "c"} {
			b.enqueue(key+"1", `{"amount":"later"}`)
			b.enqueue(key+"2", `{}`)
		}
		for key, do := range map[string]func(ops.Target, ops.Action) (ops.Delivery, error){
			"a": func(t ops.Target, a ops.Action) (ops.Delivery, error) { return b.Discard(b.Context(), t, a) },
			"b": func(t ops.Target, a ops.Action) (ops.Delivery, error) {
				return b.Repair(b.Context(), t, ops.Repair{Payload: []byte(`{}`)}, a)
			},
			"c": func(t ops.Target, a ops.Action) (ops.Delivery, error) {
				b.exec(`update outbox_event set payload = '{}' where event_id = 'c1'`) // the receiver has changed its mind
				return b.Retry(b.Context(), t, a)
			},
		} {
			failed := b.until(key+"1", relay.StatusFailed)
			b.until(key+"2", relay.StatusPending)
			if got := p.taken(key); got != "" {
				b.Errorf("it took %s before the operator said anything", got)
			}
			_, err := do(target(failed), ops.Action{By: "ann"})
			b.must(err)
			b.until(key+"2", relay.StatusPublished)
		}
		if got := p.taken("a") + "; " + p.taken("b") + "; " + p.taken("c"); got != "a2; b1 b2; c1 c2" {
			b.Errorf("it took %s, want a2; b1 b2; c1 c2", got)
		}
	})
}
