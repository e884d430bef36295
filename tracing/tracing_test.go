package tracing_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/pillarbox-dev/pillarbox/relay"
	"github.com/pillarbox-dev/pillarbox/tracing"
)

// parent is a span of a service.
func parent(t *testing.T, n int, state string) trace.SpanContext {
	t.Helper()
	s, err := trace.ParseTraceState(state)
	if err != nil {
		t.Fatal(err)
	}
	return trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1, 2, 3, byte(n >> 8), byte(n)}, SpanID: trace.SpanID{9, byte(n >> 8), byte(n)}, TraceFlags: trace.FlagsSampled, TraceState: s,
	})
}

func TestCapture(t *testing.T) {
	for name, tt := range map[string]struct {
		ctx  context.Context
		want map[string]string
	}{
		"no span": {t.Context(), map[string]string{}},
		"a span": {trace.ContextWithSpanContext(t.Context(), parent(t, 1, "")), map[string]string{
			"traceparent": "00-01020300010000000000000000000000-0900010000000000-01"}},
		"a span with a state": {trace.ContextWithSpanContext(t.Context(), parent(t, 1, "vendor=x")), map[string]string{
			"traceparent": "00-01020300010000000000000000000000-0900010000000000-01", "tracestate": "vendor=x"}},
	} {
		got := map[string]string{}
		tracing.Capture(nil)(tt.ctx, func(name, value string) { got[name] = value })
		if !maps.Equal(got, tt.want) {
			t.Errorf("%s: got %v, want %v", name, got, tt.want)
		}
	}
}

func TestOf(t *testing.T) {
	const valid = "00-01020300010000000000000000000000-0900010000000000-01"
	for headers, want := range map[string]bool{
		"":                                false,
		"{}":                              false,
		"not JSON":                        false,
		`{"traceparent":"00-0102-09-01"}`: false,
		`{"traceparent":7}`:               false,
		`{"traceparent":"` + valid + `"}`: true,
		`{"Traceparent":"` + valid + `","b":"c"}`: true,
	} {
		if got := tracing.Of([]byte(headers)).IsValid(); got != want {
			t.Errorf("%s: valid = %v, want %v", headers, got, want)
		}
	}
}

// attempt is one of an event whose producer is the span n; 0: it was not traced.
func attempt(t *testing.T, n int, topic string, kind relay.Kind, code string) relay.Attempt {
	t.Helper()
	headers := "{}"
	if n > 0 {
		tracing.Capture(nil)(trace.ContextWithSpanContext(t.Context(), parent(t, n, "")), func(name, value string) {
			headers = fmt.Sprintf(`{%q:%q}`, name, value)
		})
	}
	return relay.Attempt{
		Delivery: relay.Delivery{Event: &relay.Event{ID: fmt.Sprint("e-", n), Topic: topic, Headers: []byte(headers)}, Endpoint: "acme", Attempt: 2},
		Outcome:  relay.Outcome{Kind: kind, Message: "secret answer"}, Code: code, Took: time.Second,
	}
}

func observe(t *testing.T, attempts ...relay.Attempt) sdk.ReadOnlySpan {
	t.Helper()
	recorder := tracetest.NewSpanRecorder()
	provider := sdk.NewTracerProvider(sdk.WithSpanProcessor(recorder))
	o := tracing.NewObserver(tracing.Config{
		Provider: provider, Systems: map[string]string{"suppliers": "http"}, Now: func() time.Time { return time.Unix(100, 0) },
	})
	o.Attempted("suppliers", attempts)
	o.Attempted("suppliers", nil)
	if got := recorder.Ended(); len(got) != 1 {
		t.Fatalf("%d spans, want 1", len(got))
	}
	return recorder.Ended()[0]
}

func attributes(s sdk.ReadOnlySpan) string {
	var all []string
	for _, a := range s.Attributes() {
		all = append(all, string(a.Key)+"="+a.Value.String())
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

func TestObserverOfOneEvent(t *testing.T) {
	s := observe(t, attempt(t, 1, "orders", relay.Published, ""))
	if got, want := attributes(s), "messaging.destination.name=orders messaging.message.id=e-1 messaging.operation.name=publish "+
		"messaging.operation.type=send messaging.system=http pillarbox.attempt=2 pillarbox.destination=suppliers pillarbox.endpoint=acme"; got != want {
		t.Errorf("attributes = %s, want %s", got, want)
	}
	if s.Name() != "publish orders" || s.SpanKind() != trace.SpanKindClient || s.Status().Code != codes.Unset {
		t.Errorf("span = %s, %v, %v", s.Name(), s.SpanKind(), s.Status())
	}
	if !s.StartTime().Equal(time.Unix(99, 0)) || !s.EndTime().Equal(time.Unix(100, 0)) {
		t.Errorf("it lasts from %v to %v, want the second before 100", s.StartTime(), s.EndTime())
	}
	if l := s.Links(); len(l) != 1 || !l[0].SpanContext.Equal(parent(t, 1, "").WithRemote(true)) {
		t.Errorf("links = %v, want one to the producer", l)
	}
}

func TestObserverOfABatch(t *testing.T) {
	s := observe(t,
		attempt(t, 1, "orders", relay.Published, ""), attempt(t, 1, "orders", relay.Published, ""), attempt(t, 0, "orders", relay.Released, ""),
		attempt(t, 2, "other", relay.Retry, "TIMEOUT"), attempt(t, 3, "other", relay.Reject, "TOO_LARGE"))
	got := attributes(s)
	for _, want := range []string{"messaging.batch.message_count=5", "error.type=TIMEOUT", "pillarbox.batch.failed_count=2"} {
		if !strings.Contains(got, want) {
			t.Errorf("attributes = %s, want %s among them", got, want)
		}
	}
	if strings.Contains(got, "messaging.destination.name") || s.Name() != "publish" {
		t.Errorf("span %q with %s names a topic, and the events have two", s.Name(), got)
	}
	if s.Status() != (sdk.Status{Code: codes.Error, Description: "2 of 5 not published: TIMEOUT"}) {
		t.Errorf("status = %v", s.Status())
	}
	if len(s.Links()) != 3 {
		t.Errorf("%d links, want one for each of three producers", len(s.Links()))
	}
}

func TestObserverBoundsLinks(t *testing.T) {
	var many []relay.Attempt
	for n := range 1000 {
		many = append(many, attempt(t, n+1, "orders", relay.Published, ""))
	}
	if s := observe(t, many...); len(s.Links()) != tracing.MaxLinks || s.DroppedLinks() != 0 {
		t.Errorf("%d links and %d dropped, want %d and 0", len(s.Links()), s.DroppedLinks(), tracing.MaxLinks)
	}
}

// What the receiver said stays out, as do keys and payloads.
func TestObserverTellsNoSecret(t *testing.T) {
	a := attempt(t, 1, "orders", relay.Reject, "HTTP_422")
	a.Delivery.Payload, a.Delivery.Key = []byte("secret payload"), "secret key"
	s := observe(t, a)
	text := attributes(s) + s.Status().Description + s.Name()
	for _, l := range s.Links() {
		text += fmt.Sprint(l.Attributes)
	}
	if strings.Contains(text, "secret") {
		t.Errorf("the span tells %s", text)
	}
}
