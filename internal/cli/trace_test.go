package cli

import (
	"bytes"
	"compress/gzip"
	"context"
	"database/sql"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/pillarbox-dev/pillarbox/internal/kafkatest"
	"github.com/pillarbox-dev/pillarbox/internal/pgtest"
	"github.com/pillarbox-dev/pillarbox/outbox"
	"github.com/pillarbox-dev/pillarbox/tracing"
)

// spans is what an OTLP receiver has got.
type spans struct {
	*httptest.Server
	t        *testing.T
	mu       sync.Mutex
	got      []*otlp.Span
	services map[string]bool
	headers  []http.Header
}

func newSpans(t *testing.T) *spans {
	s := &spans{t: t, services: map[string]bool{}}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *spans) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err == nil && r.Header.Get("Content-Encoding") == "gzip" {
		var unzip *gzip.Reader
		if unzip, err = gzip.NewReader(bytes.NewReader(body)); err == nil {
			body, err = io.ReadAll(unzip)
		}
	}
	var request collector.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(body, &request)
	}
	if err != nil || r.URL.Path != "/v1/traces" {
		s.t.Errorf("the receiver got %s: %v", r.URL.Path, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.headers = append(s.headers, r.Header)
	for _, resource := range request.GetResourceSpans() {
		for _, a := range resource.GetResource().GetAttributes() {
			if a.GetKey() == "service.name" {
				s.services[a.GetValue().GetStringValue()] = true
			}
		}
		for _, scope := range resource.GetScopeSpans() {
			s.got = append(s.got, scope.GetSpans()...)
		}
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

// linked returns the system of each span that is linked to a trace.
func (s *spans) linked(to trace.SpanContext) map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	systems := map[string]int{}
	for _, span := range s.got {
		for _, link := range span.GetLinks() {
			if hex.EncodeToString(link.GetTraceId()) == to.TraceID().String() && hex.EncodeToString(link.GetSpanId()) == to.SpanID().String() {
				systems[attributeOf(span, "messaging.system")]++
			}
		}
	}
	return systems
}

func attributeOf(span *otlp.Span, key string) string {
	for _, a := range span.GetAttributes() {
		if a.GetKey() == key {
			return a.GetValue().GetStringValue()
		}
	}
	return ""
}

// The context of the one who enqueues arrives in Kafka and at an HTTP endpoint, and the relay's spans are linked to it. The
// environment's usual variables say where they go.
func TestTraceContextTravels(t *testing.T) {
	cluster := kafkatest.Shared(t)
	topic := cluster.Topic(t, 1)
	got := make(chan http.Header, 10)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r.Header }))
	t.Cleanup(receiver.Close)
	r := &rig{t: t, url: pgtest.Database(t), receiver: newReceiver(t)}
	db, err := sql.Open("pgx", r.url)
	r.open(db, err, outbox.Postgres)
	file := writeFile(t, "traced.yaml", fmt.Sprintf(`
database: {url: %q}
listen: 127.0.0.1:0
log: {format: json}
destinations:
  events: {kafka: {brokers: [%q]}}
  hooks: {http: {url: %s, allow_addresses: [127.0.0.1], signature: {scheme: sha256-hex, secret_file: %s}}}
  other-name:
    http:
      url: %s
      allow_addresses: [127.0.0.1]
      signature: {scheme: sha256-hex, secret_file: %s}
      event_headers: {rename: {traceparent: X-Trace, tracestate: "-"}}
`, r.url, cluster.Seeds()[0], receiver.URL, r.receiver.secretFile, receiver.URL, r.receiver.secretFile))

	state, err := trace.ParseTraceState("vendor=x")
	if err != nil {
		t.Fatal(err)
	}
	caller := trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1, 2, 3}, SpanID: trace.SpanID{4, 5}, TraceFlags: trace.FlagsSampled, TraceState: state,
	})
	box, err := outbox.New(outbox.Postgres, outbox.Options{Trace: tracing.Capture(nil)})
	if err != nil {
		t.Fatal(err)
	}
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx := trace.ContextWithSpanContext(context.Background(), caller)
	if _, err := box.Enqueue(ctx, tx, outbox.Event{Topic: topic, Type: "T", Payload: []byte("{}")}); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}

	otlpServer := newSpans(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", otlpServer.URL)
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=blue")
	t.Setenv("OTEL_SERVICE_NAME", "orders-relay")
	process := start(t, "run", "-c", file)
	const parent = "00-01020300000000000000000000000000-0405000000000000-01"
	record := cluster.Records(t, topic, 1)[0]
	headers := map[string]string{}
	for _, h := range record.Headers {
		headers[h.Key] = string(h.Value)
	}
	if headers["traceparent"] != parent || headers["tracestate"] != "vendor=x" {
		t.Errorf("headers of the record = %v, want the caller's trace context", headers)
	}
	for range 2 {
		h := <-got
		if h.Get("X-Trace") == parent && h.Get("Traceparent") == "" && h.Get("Tracestate") == "" {
			continue
		}
		if h.Get("Traceparent") != parent || h.Get("Tracestate") != "vendor=x" || h.Get("X-Trace") != "" {
			t.Errorf("headers of the request = %v, want the caller's trace context", h)
		}
	}
	if code := process.stop(); code != exitOK { // it sends what is left
		t.Errorf("exit status %d, want 0", code)
	}
	if systems := otlpServer.linked(caller); systems["kafka"] != 1 || systems["http"] != 2 {
		t.Errorf("spans that are linked to the caller's, by system: %v, want one of kafka and two of http", systems)
	}
	if !otlpServer.services["orders-relay"] || otlpServer.headers[0].Get("X-Tenant") != "blue" {
		t.Errorf("services %v, headers %v, want what the environment says", otlpServer.services, otlpServer.headers[0])
	}
}

// A receiver of spans that is away holds up nothing, and is told of once.
func TestTracingWithoutAReceiver(t *testing.T) {
	onBoth(t, func(r *rig) {
		r.t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
		r.t.Setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "500")
		r.t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
		process := start(r.t, "run", "-c", r.config(""))
		for n := range 3 {
			r.enqueue(true, outbox.Event{Topic: "a", Type: "T"})
			within(r.t, 20*time.Second, "an event", func() bool { return len(r.receiver.arrived()) == n+1 })
		}
		within(r.t, 20*time.Second, "a word about it", func() bool { return len(process.lines("spans cannot be sent")) > 0 })
		if code := process.stop(); code != exitOK {
			r.t.Errorf("exit status %d, want 0", code)
		}
		if lines := process.lines("spans cannot be sent"); len(lines) != 1 {
			r.t.Errorf("%d lines about it, want one", len(lines))
		}
	})
}

func TestTracingRefusesABadEnvironment(t *testing.T) {
	onBoth(t, func(r *rig) {
		r.t.Setenv("OTEL_TRACES_EXPORTER", "carrier-pigeon")
		code, _, errOut := runCLI("run", "-c", r.config(""))
		if code != exitFailed || !strings.Contains(errOut, "OTEL_TRACES_EXPORTER can be otlp, console or none") {
			r.t.Errorf("exit status %d, %s, want 1 and what to mend", code, errOut)
		}
	})
}
