package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/contrib/exporters/autoexport"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/pillarbox-dev/pillarbox/relay"
	"github.com/pillarbox-dev/pillarbox/tracing"
)

// The variables of the environment of which one has to be set before anything is traced. The others of OpenTelemetry count then
// as well: OTEL_EXPORTER_OTLP_HEADERS, OTEL_TRACES_SAMPLER, OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES …
var traceVariables = []string{"OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"}

// flushTimeout bounds how long a stop waits for the last spans to be sent.
const flushTimeout = 5 * time.Second

// Tracing sends spans to where the environment says.
type Tracing struct {
	relay.Observer
	provider *trace.TracerProvider
	log      *slog.Logger
}

// TracingConfig is what Tracing is made of. All fields are required.
type TracingConfig struct {
	// Getenv is os.Getenv.
	Getenv func(string) string
	// Owner tells the process: service.instance.id.
	Owner string
	// Systems are the kinds of the destinations.
	Systems map[string]string
	Logger  *slog.Logger
}

// NewTracing returns nil when the environment names no exporter, or switches OpenTelemetry off: then nothing is traced and
// nothing it costs.
func NewTracing(ctx context.Context, c TracingConfig) (*Tracing, error) {
	if !asked(c.Getenv) {
		return nil, nil
	}
	exporter, err := autoexport.NewSpanExporter(ctx)
	if err != nil {
		return nil, fmt.Errorf("tracing: %w: OTEL_TRACES_EXPORTER can be otlp, console or none, and OTEL_EXPORTER_OTLP_PROTOCOL "+
			"grpc or http/protobuf; unset them all, and OTEL_EXPORTER_OTLP_ENDPOINT, to trace nothing", err)
	}
	if autoexport.IsNoneSpanExporter(exporter) {
		return nil, nil
	}
	// What the environment says comes last, and so counts.
	about, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithAttributes(
		attribute.String("service.name", "pillarbox"), attribute.String("service.instance.id", c.Owner)), resource.WithFromEnv())
	if err != nil && !errors.Is(err, resource.ErrPartialResource) && !errors.Is(err, resource.ErrSchemaURLConflict) {
		return nil, errors.Join(fmt.Errorf("tracing: OTEL_RESOURCE_ATTRIBUTES: %w: write key=value,key=value", err),
			exporter.Shutdown(ctx))
	}
	quiet := &seldom{log: c.Logger, every: time.Minute, now: time.Now}
	otel.SetErrorHandler(quiet) // what the SDK has to say goes to the log as well, and not to standard error as it is
	provider := trace.NewTracerProvider(trace.WithResource(about), trace.WithBatcher(reported{exporter, quiet}))
	return &Tracing{
		Observer: tracing.NewObserver(tracing.Config{Provider: provider, Systems: c.Systems}), provider: provider, log: c.Logger,
	}, nil
}

func asked(getenv func(string) string) bool {
	if strings.EqualFold(getenv("OTEL_SDK_DISABLED"), "true") {
		return false
	}
	for _, name := range traceVariables {
		if getenv(name) != "" {
			return true
		}
	}
	return false
}

// Close sends what is left, for a few seconds at most.
func (t *Tracing) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		t.log.Warn("the last spans may not have been sent", "error", err)
	}
}

// reported tells of what cannot be exported, instead of the SDK.
type reported struct {
	trace.SpanExporter
	errors *seldom
}

func (r reported) ExportSpans(ctx context.Context, spans []trace.ReadOnlySpan) error {
	if err := r.SpanExporter.ExportSpans(ctx, spans); err != nil {
		r.errors.Handle(err)
	}
	return nil
}

// seldom logs errors, one now and then: an exporter that is away fails every few seconds.
type seldom struct {
	log   *slog.Logger
	every time.Duration
	now   func() time.Time

	mu    sync.Mutex
	last  time.Time
	quiet int
}

// Handle implements otel.ErrorHandler.
func (s *seldom) Handle(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if !s.last.IsZero() && now.Sub(s.last) < s.every {
		s.quiet++
		return
	}
	s.log.Warn("spans cannot be sent", "error", err, "not_told_before", s.quiet)
	s.last, s.quiet = now, 0
}
