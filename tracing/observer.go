package tracing

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// MaxLinks is how many traces one span is linked to: those of the first events of the call. SDKs keep no more by default.
const MaxLinks = 128

const scope = "github.com/pillarbox-dev/pillarbox/tracing"

// Attributes beside those of OpenTelemetry's conventions for messaging.
const (
	destinationKey = attribute.Key("pillarbox.destination")
	endpointKey    = attribute.Key("pillarbox.endpoint")
	attemptKey     = attribute.Key("pillarbox.attempt")
	failedKey      = attribute.Key("pillarbox.batch.failed_count")
)

// Config says how spans are made.
type Config struct {
	// Provider is required.
	Provider trace.TracerProvider
	// Systems are the values of messaging.system by destination: kafka, http. A destination without one has no such attribute.
	Systems map[string]string
	// Now is the clock for the end of a span. Default: time.Now.
	Now func() time.Time
}

// Observer makes a span of each call that a relay has made to a destination. It sees no payload, and of an event it tells the
// topic, the type, the id, and nothing else.
type Observer struct {
	relay.Unobserved
	tracer  trace.Tracer
	systems map[string]string
	now     func() time.Time
}

var _ relay.Observer = (*Observer)(nil)

// NewObserver returns an observer.
func NewObserver(c Config) *Observer {
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Observer{tracer: c.Provider.Tracer(scope), systems: c.Systems, now: c.Now}
}

// Attempted implements relay.Observer. The span begins when the call began; it is linked to the span in which each event was
// enqueued, up to MaxLinks. What a stop broke off is no error.
func (o *Observer) Attempted(destination string, attempts []relay.Attempt) {
	if len(attempts) == 0 {
		return
	}
	end := o.now()
	_, span := o.tracer.Start(context.Background(), o.name(attempts),
		trace.WithSpanKind(trace.SpanKindClient), // the events were created by others: OpenTelemetry's conventions for messaging
		trace.WithTimestamp(end.Add(-attempts[0].Took)),
		trace.WithLinks(links(attempts)...),
		trace.WithAttributes(o.attributes(destination, attempts)...))
	if failed, code := failures(attempts); failed > 0 {
		span.SetAttributes(semconv.ErrorTypeKey.String(code), failedKey.Int(failed))
		span.SetStatus(codes.Error, fmt.Sprintf("%d of %d not published: %s", failed, len(attempts), code))
	}
	span.End(trace.WithTimestamp(end))
}

// name is the operation and, when all events have one, the topic.
func (o *Observer) name(attempts []relay.Attempt) string {
	if topic := commonTopic(attempts); topic != "" {
		return "publish " + topic
	}
	return "publish"
}

func commonTopic(attempts []relay.Attempt) string {
	topic := attempts[0].Delivery.Topic
	for i := range attempts {
		if attempts[i].Delivery.Topic != topic {
			return ""
		}
	}
	return topic
}

func (o *Observer) attributes(destination string, attempts []relay.Attempt) []attribute.KeyValue {
	first := &attempts[0]
	all := []attribute.KeyValue{
		semconv.MessagingOperationName("publish"), semconv.MessagingOperationTypeSend, destinationKey.String(destination),
	}
	if system := o.systems[destination]; system != "" {
		all = append(all, semconv.MessagingSystemKey.String(system))
	}
	if topic := commonTopic(attempts); topic != "" {
		all = append(all, semconv.MessagingDestinationName(topic))
	}
	if first.Delivery.Endpoint != "" {
		all = append(all, endpointKey.String(first.Delivery.Endpoint))
	}
	if len(attempts) > 1 {
		return append(all, semconv.MessagingBatchMessageCount(len(attempts)))
	}
	return append(all, semconv.MessagingMessageID(first.Delivery.ID), attemptKey.Int(first.Delivery.Attempt))
}

// links names each span once.
func links(attempts []relay.Attempt) (all []trace.Link) {
	type span struct {
		trace trace.TraceID
		id    trace.SpanID
	}
	seen := map[span]bool{}
	for i := range attempts {
		producer := Of(attempts[i].Delivery.Headers)
		if this := (span{producer.TraceID(), producer.SpanID()}); producer.IsValid() && !seen[this] {
			seen[this] = true
		} else {
			continue
		}
		if all = append(all, trace.Link{SpanContext: producer}); len(all) == MaxLinks {
			break
		}
	}
	return all
}

// failures counts what was not published, and returns the code of the first.
func failures(attempts []relay.Attempt) (failed int, code string) {
	for i := range attempts {
		switch attempts[i].Outcome.Kind {
		case relay.Published, relay.Released:
		default:
			if failed++; code == "" {
				code = attempts[i].Code
			}
		}
	}
	return failed, code
}
