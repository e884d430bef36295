package relaytest

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// Rig is a destination under test with its far end: a server of the test's own, or a real one behind something that can hold
// it up. Payloads are sent as they are, without an envelope.
type Rig interface {
	Destination() relay.Destination
	// Received returns what the far end has taken so far, in the order of its arrival.
	Received(t testing.TB) []Received
	// Refused returns an event that the far end refuses for good. Needed with DestinationFeatures.Refuses.
	Refused(t testing.TB) relay.Event
	// Hang lets the far end take what comes and not answer, until resume is called.
	Hang(t testing.TB) (resume func())
	// Stop lets nobody reach the far end, until start is called.
	Stop(t testing.TB) (start func())
}

// Received is what arrived at a far end.
type Received struct {
	ID      string // event_id
	Key     string // where the destination sends it; else ""
	Payload []byte // nil for a tombstone, where that differs from no bytes
}

// DestinationFeatures is what differs between destinations.
type DestinationFeatures struct {
	// Topic is one that the far end takes. Default "topic".
	Topic string
	// Refuses: the far end refuses some events for good.
	Refuses bool
	// Tombstones: no payload differs from a payload of no bytes.
	Tombstones bool
	// MaxPayload is the size of the biggest payload that is tried, in bytes. Default 1 MiB.
	MaxPayload int
}

// TestDestination runs the conformance suite: what package relay says of a Destination. open is called once for each
// test. Tests wait for the far end, for some seconds at most.
func TestDestination(t *testing.T, f DestinationFeatures, open func(t *testing.T) Rig) {
	if f.Topic == "" {
		f.Topic = "topic"
	}
	if f.MaxPayload == 0 {
		f.MaxPayload = 1 << 20
	}
	for _, test := range []struct {
		name  string
		run   func(*destinationBench)
		needs bool
	}{
		{"one outcome for each delivery, in its place", (*destinationBench).testPlaces, f.Refuses},
		{"no delivery, no outcome", (*destinationBench).testNone, true},
		{"payloads keep every byte", (*destinationBench).testBytes, true},
		{"a batch arrives in order", (*destinationBench).testOrder, true},
		{"many calls at once", (*destinationBench).testTogether, true},
		{"an event is not changed", (*destinationBench).testUnchanged, true},
		{"headers that are no object get an outcome", (*destinationBench).testHeaders, true},
		{"no answer by the deadline is a Retry, or Unavailable, that may have arrived", (*destinationBench).testDeadline, true},
		{"a shutdown releases what is under way", (*destinationBench).testShutdown, true},
		{"after a shutdown nothing is sent", (*destinationBench).testStopped, true},
		{"a far end that cannot be reached is Unavailable", (*destinationBench).testUnreachable, true},
		{"calls leave no goroutine behind", (*destinationBench).testGoroutines, true},
	} {
		if test.needs {
			t.Run(test.name, func(t *testing.T) {
				rig := open(t)
				test.run(&destinationBench{T: t, Rig: rig, d: rig.Destination(), features: f})
			})
		}
	}
}

// destinationBench is what a test works with.
type destinationBench struct {
	*testing.T
	Rig
	d        relay.Destination
	features DestinationFeatures
	mu       sync.Mutex
	seq      int64
}

const (
	// plenty is a deadline that is not met, brief one that is.
	plenty = 20 * time.Second
	brief  = 300 * time.Millisecond
	// grace is how much later than the deadline a call may return on a busy machine.
	grace = 3 * time.Second
)

// delivery makes a first attempt. What the event lacks is filled in.
func (b *destinationBench) delivery(e relay.Event) relay.Delivery {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seq++
	e.Seq = b.seq
	if e.ID == "" {
		e.ID = fmt.Sprintf("0197-event-%d", e.Seq)
	}
	if e.Topic == "" {
		e.Topic = b.features.Topic
	}
	if e.Type == "" {
		e.Type = "SomethingHappened"
	}
	if e.Headers == nil {
		e.Headers = []byte(`{}`)
	}
	e.Version, e.CreatedAt = 1, time.Now()
	d := relay.Delivery{Event: &e, Attempt: 1}
	if r, ok := b.d.(relay.Router); ok {
		d.Endpoint = r.Endpoint(&e)
	}
	return d
}

func (b *destinationBench) deliveries(n int, key string) []relay.Delivery {
	var batch []relay.Delivery
	for i := range n {
		batch = append(batch, b.delivery(relay.Event{Key: key, Payload: []byte(fmt.Sprintf(`{"n":%d}`, i))}))
	}
	return batch
}

// maxBatch is how many deliveries one call takes.
func (b *destinationBench) maxBatch() int {
	if batcher, ok := b.d.(relay.Batcher); ok {
		return max(1, batcher.MaxBatch())
	}
	return 1
}

// deliver makes as many calls as the destination needs and checks the shape of what comes back.
func (b *destinationBench) deliver(ctx context.Context, batch []relay.Delivery) (outcomes []relay.Outcome) {
	b.Helper()
	ctx, cancel := context.WithTimeout(ctx, plenty)
	defer cancel()
	for size := b.maxBatch(); len(batch) > 0; batch = batch[min(size, len(batch)):] {
		part := batch[:min(size, len(batch))]
		got := b.d.Deliver(ctx, part)
		if len(got) != len(part) {
			b.Fatalf("Deliver returned %d outcomes for %d deliveries", len(got), len(part))
		}
		for _, o := range got {
			b.shape(o)
		}
		outcomes = append(outcomes, got...)
	}
	return outcomes
}

func (b *destinationBench) shape(o relay.Outcome) {
	b.Helper()
	switch o.Kind {
	case relay.Published, relay.Released:
	case relay.Retry, relay.Reject, relay.Unavailable:
		if !validCode(o.Code) || len(o.Code) > relay.MaxErrorCode {
			b.Errorf("%v with code %q, want a short one in upper case", o.Kind, o.Code)
		}
	default:
		b.Errorf("outcome of the unknown kind %d", o.Kind)
	}
}

func validCode(code string) bool {
	return code != "" && strings.Trim(code, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == ""
}

// wantKind reports outcomes of another kind.
func (b *destinationBench) wantKind(outcomes []relay.Outcome, want relay.Kind) {
	b.Helper()
	for i, o := range outcomes {
		if o.Kind != want {
			b.Errorf("outcome %d is %v (%s: %s), want %v", i, o.Kind, o.Code, o.Message, want)
		}
	}
}

// received waits until the far end has taken n events or more.
func (b *destinationBench) received(n int) []Received {
	b.Helper()
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if got := b.Received(b); len(got) >= n || time.Since(began) > plenty {
			return got
		}
	}
}

func (b *destinationBench) testPlaces() {
	batch := b.deliveries(5, "k")
	refused := b.delivery(b.Refused(b))
	batch = append(batch[:2:2], append([]relay.Delivery{refused}, batch[2:]...)...)
	for i, o := range b.deliver(b.Context(), batch) {
		want := relay.Published
		if i == 2 {
			want = relay.Reject
		}
		if o.Kind != want {
			b.Errorf("outcome %d is %v (%s: %s), want %v", i, o.Kind, o.Code, o.Message, want)
		}
	}
	got := b.received(5)
	if len(got) != 5 {
		b.Errorf("%d events arrived, want 5", len(got))
	}
	for _, r := range got {
		if r.ID == refused.ID {
			b.Errorf("the refused event %s arrived", r.ID)
		}
	}
}

func (b *destinationBench) testNone() {
	if got := b.d.Deliver(b.Context(), nil); len(got) != 0 {
		b.Errorf("got %d outcomes for no delivery", len(got))
	}
}

func (b *destinationBench) testBytes() {
	everyByte := make([]byte, 256)
	for i := range everyByte {
		everyByte[i] = byte(i)
	}
	for _, test := range []struct {
		name  string
		event relay.Event
	}{
		{"spacing and numbers", relay.Event{Payload: []byte("{ \"b\" : 1.0,\n\t\"a\":12345678901234567890.10 }\n")}},
		{"text beyond ASCII", relay.Event{Payload: []byte(`"grün 🙂 \u2028 <&>"`)}},
		{"a JSON null", relay.Event{Payload: []byte(`null`)}},
		{"every byte", relay.Event{Payload: everyByte, Binary: true}},
		{"no byte", relay.Event{Payload: []byte{}, Binary: true}},
		{"a tombstone", relay.Event{Key: "k"}},
		{"a big one", relay.Event{Payload: []byte(`"` + strings.Repeat("x", b.features.MaxPayload-2) + `"`)}},
	} {
		d := b.delivery(test.event)
		before := len(b.Received(b))
		b.wantKind(b.deliver(b.Context(), []relay.Delivery{d}), relay.Published)
		got := b.received(before + 1)
		if len(got) != before+1 {
			b.Fatalf("%s: %d events arrived, want 1", test.name, len(got)-before)
		}
		last := got[len(got)-1]
		if last.ID != d.ID || !bytes.Equal(last.Payload, d.Payload) {
			b.Errorf("%s: %s arrived with %.60q, want %s with %.60q", test.name, last.ID, last.Payload, d.ID, d.Payload)
		}
		if b.features.Tombstones && (last.Payload == nil) != (d.Payload == nil) {
			b.Errorf("%s: arrived as a tombstone: %v, want %v", test.name, last.Payload == nil, d.Payload == nil)
		}
	}
}

func (b *destinationBench) testOrder() {
	batch := b.deliveries(50, "one key")
	b.wantKind(b.deliver(b.Context(), batch), relay.Published)
	got := b.received(len(batch))
	if len(got) != len(batch) {
		b.Fatalf("%d events arrived, want %d", len(got), len(batch))
	}
	for i, r := range got {
		if r.ID != batch[i].ID {
			b.Fatalf("event %d to arrive is %s, want %s", i, r.ID, batch[i].ID)
		}
	}
}

func (b *destinationBench) testTogether() {
	const calls, each = 10, 20
	var all [calls][]relay.Delivery
	var wg sync.WaitGroup
	for i := range all {
		all[i] = b.deliveries(each, fmt.Sprint("key-", i))
		wg.Go(func() { b.wantKind(b.deliver(b.Context(), all[i]), relay.Published) })
	}
	wg.Wait()
	count := map[string]int{}
	for _, r := range b.received(calls * each) {
		count[r.ID]++
	}
	for _, batch := range all {
		for _, d := range batch {
			if count[d.ID] != 1 {
				b.Errorf("event %s arrived %d times, want once", d.ID, count[d.ID])
			}
		}
	}
}

func (b *destinationBench) testUnchanged() {
	batch := b.deliveries(1, "k")
	batch[0].Headers = []byte(`{"a":"b"}`)
	event := *batch[0].Event
	event.Payload, event.Headers = bytes.Clone(event.Payload), bytes.Clone(event.Headers)
	b.deliver(b.Context(), batch)
	check(b, "the event after its delivery", *batch[0].Event, event)
}

func (b *destinationBench) testHeaders() {
	for _, headers := range []string{`[]`, `"x"`, `{"a":1}`, `{"a":{"b":"c"}}`, `null`, `{"a\nb":"c\r\nd"}`} {
		d := b.delivery(relay.Event{Payload: []byte(`{}`), Headers: []byte(headers)})
		o := b.deliver(b.Context(), []relay.Delivery{d})[0]
		if o.Kind != relay.Published && o.Kind != relay.Reject {
			b.Errorf("headers %s: got %v (%s: %s), want published or reject: another try changes nothing",
				headers, o.Kind, o.Code, o.Message)
		}
	}
}

// held delivers while the far end hangs, under a context that ends soon, and checks that the call ends with it.
func (b *destinationBench) held(ctx context.Context) []relay.Outcome {
	b.Helper()
	b.wantKind(b.deliver(b.Context(), b.deliveries(1, "k")), relay.Published) // so that it is connected
	resume := b.Hang(b)
	defer resume()
	batch := b.deliveries(min(3, b.maxBatch()), "k")
	ctx, cancel := context.WithTimeout(ctx, brief)
	defer cancel()
	began := time.Now()
	outcomes := b.d.Deliver(ctx, batch)
	if took := time.Since(began); took > brief+grace {
		b.Errorf("Deliver returned after %v, want it to by the deadline of %v", took, brief)
	}
	if len(outcomes) != len(batch) {
		b.Fatalf("Deliver returned %d outcomes for %d deliveries", len(outcomes), len(batch))
	}
	for _, o := range outcomes {
		b.shape(o)
	}
	return outcomes
}

func (b *destinationBench) testDeadline() {
	for i, o := range b.held(b.Context()) {
		if o.Kind != relay.Retry && o.Kind != relay.Unavailable || !o.Uncertain {
			b.Errorf("outcome %d is %v (%s: %s), uncertain %v, want a retry or unavailable, and uncertain", i, o.Kind, o.Code, o.Message, o.Uncertain)
		}
	}
}

func (b *destinationBench) testShutdown() {
	ctx, stop := context.WithCancelCause(b.Context())
	time.AfterFunc(brief/3, func() { stop(relay.ErrShutdown) })
	b.wantKind(b.held(ctx), relay.Released)
}

func (b *destinationBench) testStopped() {
	ctx, stop := context.WithCancelCause(b.Context())
	stop(relay.ErrShutdown)
	b.wantKind(b.deliver(ctx, b.deliveries(3, "k")), relay.Released)
	b.wantKind(b.deliver(b.Context(), b.deliveries(1, "k")), relay.Published)
	if got := b.received(1); len(got) != 1 {
		b.Errorf("%d events arrived, want the one that was sent while nothing was stopped", len(got))
	}
}

func (b *destinationBench) testUnreachable() {
	batch := b.deliveries(2, "k")
	start := b.Stop(b)
	ctx, cancel := context.WithTimeout(b.Context(), 5*time.Second)
	b.wantKind(b.deliver(ctx, batch), relay.Unavailable)
	cancel()
	start()
	for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		outcomes := b.deliver(b.Context(), batch)
		if outcomes[0].Kind == relay.Published {
			return
		}
		if time.Since(began) > plenty {
			b.Fatalf("%v after the far end is back: %+v, want published", plenty, outcomes[0])
		}
	}
}

// testGoroutines makes many calls that end by their deadline. What each leaves behind adds up.
func (b *destinationBench) testGoroutines() {
	const calls, at = 60, 10
	try := func() {
		var wg sync.WaitGroup
		for range at {
			wg.Go(func() {
				for range calls / at {
					ctx, cancel := context.WithTimeout(b.Context(), brief/3)
					b.d.Deliver(ctx, b.deliveries(1, ""))
					cancel()
				}
			})
		}
		wg.Wait()
	}
	b.deliver(b.Context(), b.deliveries(1, ""))
	before := runtime.NumGoroutine()
	resume := b.Hang(b)
	try()
	resume()
	after := runtime.NumGoroutine()
	for began := time.Now(); after > before+calls/2 && time.Since(began) < plenty; after = runtime.NumGoroutine() {
		time.Sleep(50 * time.Millisecond)
	}
	if after > before+calls/2 {
		stacks := make([]byte, 1<<16)
		b.Errorf("%d goroutines before and %d after %d calls that ended\n%s",
			before, after, calls, stacks[:runtime.Stack(stacks, true)])
	}
}
