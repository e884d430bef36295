package kafka

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// newDestination makes one that is closed at the end of the test.
func newDestination(t testing.TB, brokers []string, change ...func(*Config)) *Destination {
	t.Helper()
	c := Config{Brokers: brokers}
	for _, f := range change {
		f(&c)
	}
	d, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

var lastSeq atomic.Int64

// delivery makes a first attempt. What the event lacks is filled in.
func delivery(e relay.Event) relay.Delivery {
	e.Seq = lastSeq.Add(1)
	if e.ID == "" {
		e.ID = fmt.Sprintf("event-%06d", e.Seq)
	}
	if e.Type == "" {
		e.Type = "SomethingHappened"
	}
	if e.Version == 0 {
		e.Version = 1
	}
	if e.CreatedAt.IsZero() {
		e.CreatedAt = time.Now()
	}
	return relay.Delivery{Event: &e, Attempt: 1}
}

// deliver makes one call under the relay's default timeout.
func deliver(t testing.TB, d *Destination, batch ...relay.Delivery) []relay.Outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	outcomes := d.Deliver(ctx, batch)
	if len(outcomes) != len(batch) {
		t.Fatalf("%d outcomes for %d deliveries", len(outcomes), len(batch))
	}
	return outcomes
}

func wantOutcome(t testing.TB, what string, got relay.Outcome, kind relay.Kind, code string) {
	t.Helper()
	if got.Kind != kind || got.Code != code {
		t.Errorf("%s: got %v %s (%s), want %v %s", what, got.Kind, got.Code, got.Message, kind, code)
	}
}

func wantAll(t testing.TB, outcomes []relay.Outcome, kind relay.Kind, code string) {
	t.Helper()
	for i, o := range outcomes {
		wantOutcome(t, fmt.Sprint("outcome ", i), o, kind, code)
	}
}

// eventID is what a consumer dedupes by.
func eventID(r *kgo.Record) string {
	for _, h := range r.Headers {
		if h.Key == headerID {
			return string(h.Value)
		}
	}
	return ""
}

func eventIDs(records []*kgo.Record) (ids []string) {
	for _, r := range records {
		ids = append(ids, eventID(r))
	}
	return ids
}
