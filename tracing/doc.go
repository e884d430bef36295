// Package tracing ties the deliveries of a relay to the traces of the services that wrote the events, with OpenTelemetry.
//
//	transaction → log → lanes → destination → outcome → settle
//	└─ Capture                  └─ Observer: a publish span, linked
//
// A service gives Capture to its outbox, so that the trace context of the one who enqueues goes into the event's headers:
//
//	outbox.New(outbox.Postgres, outbox.Options{Trace: tracing.Capture(nil)})
//
// As headers of the event it goes along to Kafka and to HTTP endpoints, and a consumer's instrumentation takes it up from there:
// its span is a child of the span in which the event was enqueued. The relay's own work is a span of its own, which is linked to
// it, because one call may carry the events of many traces.
//
// A relay that is embedded in a service gives NewObserver to relay.Config.Observer. `pillarbox run` does both by itself when the
// environment names an exporter.
package tracing
