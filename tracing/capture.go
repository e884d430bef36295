package tracing

import (
	"context"
	"encoding/json"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Capture returns what outbox.Options.Trace wants: it sets the headers of the context that Enqueue is called with. A nil
// propagator is that of W3C Trace Context: traceparent and tracestate. Baggage is not among them, since it would go to every
// receiver.
func Capture(p propagation.TextMapPropagator) func(ctx context.Context, set func(name, value string)) {
	if p == nil {
		p = propagation.TraceContext{}
	}
	return func(ctx context.Context, set func(name, value string)) { p.Inject(ctx, setter(set)) }
}

// setter is a carrier that only takes.
type setter func(name, value string)

func (s setter) Set(name, value string) { s(name, value) }
func (setter) Get(string) string        { return "" }
func (setter) Keys() []string           { return nil }

// Of returns the span that an event's headers name; it is not valid when they name none. headers is the JSON text of a flat
// object.
func Of(headers []byte) trace.SpanContext {
	var h struct { // names are found in any case
		Traceparent string `json:"traceparent"`
		Tracestate  string `json:"tracestate"`
	}
	if json.Unmarshal(headers, &h) != nil || h.Traceparent == "" {
		return trace.SpanContext{}
	}
	carrier := propagation.MapCarrier{"traceparent": h.Traceparent, "tracestate": h.Tracestate}
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), carrier))
}
