package telemetry

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pillarbox-dev/pillarbox/ops"
	"github.com/pillarbox-dev/pillarbox/relay"
)

// gather returns the samples by name and labels, histograms by their count.
func gather(t *testing.T, m prometheus.Collector) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(m)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	samples := map[string]float64{}
	for _, f := range families {
		for _, metric := range f.GetMetric() {
			name := f.GetName()
			for _, label := range metric.GetLabel() {
				name += " " + label.GetValue()
			}
			switch {
			case metric.Counter != nil:
				samples[name] = metric.Counter.GetValue()
			case metric.Gauge != nil:
				samples[name] = metric.Gauge.GetValue()
			case metric.Histogram != nil:
				samples[name] = float64(metric.Histogram.GetSampleCount())
			}
		}
	}
	return samples
}

func newMetrics(status func(context.Context) (ops.Status, error)) *Metrics {
	return NewMetrics(MetricsConfig{
		Destinations: []string{"a", "b"},
		Codes:        []string{"TIMEOUT", "REJECTED_BALANCE"},
		Status:       NewStatusCache(status, slog.New(slog.DiscardHandler)),
		Units: func() []relay.UnitStatus {
			return []relay.UnitStatus{
				{Destination: "a", Shard: relay.Shard{Number: 0, Of: 2}, Endpoints: []relay.EndpointStatus{
					{Endpoint: "x", State: "open"}, {Endpoint: "y", State: "paused"}, {Endpoint: "z", State: "draining"}}},
				{Destination: "a", Shard: relay.Shard{Number: 1, Of: 2}, Endpoints: []relay.EndpointStatus{ // the same one
					{Endpoint: "x", State: "probing"}, {Endpoint: "y", State: "draining"}}},
			}
		},
	})
}

func TestMetrics(t *testing.T) {
	m := newMetrics(func(context.Context) (ops.Status, error) {
		return ops.Status{Destinations: []ops.DestinationStatus{
			{Destination: "a", Pending: ops.Count{N: 5}, Failed: ops.Count{N: 2}, Quarantined: ops.Count{N: 3},
				OldestPendingAge: ops.Seconds(90 * time.Second)},
			{Destination: "of another relay", Pending: ops.Count{N: 7}},
		}}, nil
	})
	attempt := func(kind relay.Kind, code string) relay.Attempt {
		return relay.Attempt{Outcome: relay.Outcome{Kind: kind}, Code: code}
	}
	m.Read("a", 10, time.Millisecond)
	m.Attempted("a", []relay.Attempt{
		attempt(relay.Published, ""), attempt(relay.Retry, "TIMEOUT"), attempt(relay.Reject, "HTTP_422"),
		attempt(relay.Reject, "REJECTED_BALANCE"), attempt(relay.Retry, relay.CodeExhausted), attempt(relay.Retry, "HTTP_999"),
		attempt(relay.Retry, "HTTP_+22"), attempt(relay.Retry, "what the event says"), attempt(relay.Released, ""),
	})
	m.Settled("a", relay.SettleReport{Took: time.Millisecond, Published: 2, Latencies: []time.Duration{1, 2}})
	m.Noticed("a", relay.Notice{Kind: relay.NoticePossibleDuplicate, Count: 4})
	m.Noticed("a", relay.Notice{Kind: relay.NoticeLeaseLost})
	m.Attempted("unknown", []relay.Attempt{attempt(relay.Retry, "TIMEOUT")})

	got := gather(t, m)
	want := map[string]float64{
		"outbox_breaker_open a": 2, "outbox_breaker_open b": 0,
		"outbox_commit_to_publish_latency_ms a": 1, "outbox_commit_to_publish_latency_ms b": 0,
		"outbox_lease_lost_total a": 1, "outbox_lease_lost_total b": 0,
		"outbox_oldest_pending_age_seconds a": 90,
		"outbox_pending_count a":              7,
		"outbox_possible_duplicate_total a":   4, "outbox_possible_duplicate_total b": 0,
		"outbox_publish_failure_total EXHAUSTED a": 1, "outbox_publish_failure_total HTTP_422 a": 1,
		"outbox_publish_failure_total OTHER a": 3, "outbox_publish_failure_total REJECTED_BALANCE a": 1,
		"outbox_publish_failure_total TIMEOUT a": 1,
		"outbox_publish_latency_ms a":            2, "outbox_publish_latency_ms b": 0,
		"outbox_publish_success_total a": 2, "outbox_publish_success_total b": 0,
		"outbox_quarantined_count a": 3,
		"outbox_read_latency_ms a":   1, "outbox_read_latency_ms b": 0,
		"outbox_settle_latency_ms a": 1, "outbox_settle_latency_ms b": 0,
	}
	for name, value := range want {
		if g, there := got[name]; !there || g != value {
			t.Errorf("%s = %v (there: %v), want %v", name, g, there, value)
		}
	}
	for name := range got {
		if _, wanted := want[name]; !wanted {
			t.Errorf("%s is not wanted", name)
		}
	}
}

// The database is asked once for scrapes that follow each other, is given a deadline, and its failure takes its gauges away.
func TestGaugesAreCachedAndBounded(t *testing.T) {
	asked := 0
	m := newMetrics(func(ctx context.Context) (ops.Status, error) {
		asked++
		if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) > StatusTimeout {
			t.Errorf("deadline = %v, %v, want one within %v", deadline, ok, StatusTimeout)
		}
		return ops.Status{}, errors.New("the database is away")
	})
	for range 3 {
		for name := range gather(t, m) {
			if strings.HasPrefix(name, "outbox_pending_count") {
				t.Errorf("%s is there while the database is away", name)
			}
		}
	}
	if asked != 1 {
		t.Errorf("the database was asked %d times, want once", asked)
	}
}

func TestAttemptLog(t *testing.T) {
	var out bytes.Buffer
	log := AttemptLog{Logger: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}}))}
	delivery := relay.Delivery{Endpoint: "acme", Attempt: 2, Event: &relay.Event{
		Seq: 7, ID: "e-7", Type: "Accepted", Key: "secret key", Payload: []byte("secret payload"), Headers: []byte(`{"a":"secret"}`)}}
	log.Attempted("suppliers", []relay.Attempt{
		{Delivery: delivery, Outcome: relay.Outcome{Kind: relay.Published, Receipt: "200"}, Decision: relay.StatusPublished, Took: time.Second},
		{Delivery: delivery, Outcome: relay.Outcome{Kind: relay.Retry, Message: "secret answer"}, Decision: relay.StatusFailed,
			Code: "HTTP_500", NextIn: time.Minute},
		{Delivery: delivery, Outcome: relay.Outcome{Kind: relay.Reject}, Decision: relay.StatusQuarantined, Code: "HTTP_422"},
		{Delivery: delivery, Outcome: relay.Outcome{Kind: relay.Released}, Decision: relay.StatusPending},
	})
	const what = "destination=suppliers endpoint=acme seq=7 event_id=e-7 type=Accepted attempt=2"
	want := []string{
		"level=INFO msg=attempt " + what + " outcome=published status=PUBLISHED code=\"\" took=1s receipt=200",
		"level=WARN msg=attempt " + what + " outcome=retry status=FAILED code=HTTP_500 took=0s next_in=1m0s",
		"level=ERROR msg=attempt " + what + " outcome=reject status=QUARANTINED code=HTTP_422 took=0s",
		"",
	}
	if got := strings.Split(out.String(), "\n"); !slices.Equal(got, want) {
		t.Errorf("logged:\n%s\nwant:\n%s", out.String(), strings.Join(want, "\n"))
	}
	if strings.Contains(out.String(), "secret") {
		t.Error("the log shows what an event holds")
	}
}

// Each observer hears everything.
func TestObservers(t *testing.T) {
	var a, b counting
	all := Observers{&a, &b}
	all.Read("d", 1, 0)
	all.Attempted("d", nil)
	all.Settled("d", relay.SettleReport{})
	all.Noticed("d", relay.Notice{})
	if a != 4 || b != 4 {
		t.Errorf("heard %d and %d, want 4 each", a, b)
	}
}

type counting int

func (c *counting) Read(string, int, time.Duration)    { *c++ }
func (c *counting) Attempted(string, []relay.Attempt)  { *c++ }
func (c *counting) Settled(string, relay.SettleReport) { *c++ }
func (c *counting) Noticed(string, relay.Notice)       { *c++ }

// TestReconcileThatNeverSucceeded: the alert on the last success has to hear of it as well.
func TestReconcileThatNeverSucceeded(t *testing.T) {
	const success = "outbox_reconcile_last_success_timestamp_seconds"
	at := time.Unix(1_764_460_800, 0)
	broken := ops.ReconcileReport{At: at, Checks: []string{"unpaid"}, Errors: map[string]string{"unpaid": "no such table"}}
	for name, c := range map[string]struct {
		state ops.ReconcileState
		err   error
		want  map[string]float64
	}{
		"it has not run":    {ops.ReconcileState{}, nil, map[string]float64{success: 0}},
		"a check is broken": {ops.ReconcileState{Report: broken}, nil, map[string]float64{success: 0}},
		"all is well": {ops.ReconcileState{Report: ops.ReconcileReport{At: at}, LastSuccess: at}, nil,
			map[string]float64{success: 1_764_460_800, "outbox_reconcile_findings unpaid": 0}},
		"the database does not answer": {ops.ReconcileState{}, errors.New("gone"), map[string]float64{}},
	} {
		m := NewReconcileMetrics([]string{"unpaid"}, func(context.Context) (ops.ReconcileState, error) { return c.state, c.err },
			slog.New(slog.DiscardHandler))
		if got := gather(t, m); !maps.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}
