package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	httpdest "github.com/pillarbox-dev/pillarbox/destination/http"
	"github.com/pillarbox-dev/pillarbox/relay"
)

// overHTTP measures how fast a full log goes to a signed HTTP receiver, beside the same client with the same number of
// requests under way that gets its events out of memory.
type overHTTP struct {
	events, concurrency int
	report              report
}

func httpFlags(flags *flag.FlagSet) measurement {
	var h overHTTP
	flags.IntVar(&h.events, "events", 50_000, "how many events each side sends in a round")
	flags.IntVar(&h.concurrency, "concurrency", 32, "requests under way at once, on both sides; 32 is the relay's default")
	return h.measure
}

func (h *overHTTP) measure(ctx context.Context, s *session) (*report, error) {
	if h.events < 2 || h.concurrency < 1 {
		return nil, errors.New("--events must be at least 2 and --concurrency at least 1")
	}
	log, err := s.newLog(ctx, "http", h.events)
	if err != nil {
		return nil, err
	}
	defer log.pool.Close()
	r, err := startReceiver()
	if err != nil {
		return nil, err
	}
	for n := range s.rounds {
		s.say("round %d of %d", n+1, s.rounds)
		if err := h.round(ctx, s, log, r); err != nil {
			return nil, errors.Join(err, r.close())
		}
	}
	h.report.want("ratio", atLeast(0.7))
	h.report.note("events", h.events)
	h.report.note("concurrency", h.concurrency)
	h.report.note("payload_bytes", payloadSize)
	return &h.report, errors.Join(r.check(), r.close())
}

func (h *overHTTP) round(ctx context.Context, s *session, log *eventLog, r *receiver) error {
	bare, err := h.bare(ctx, s, log, r)
	if err != nil {
		return fmt.Errorf("without an outbox: %w", err)
	}
	s.say("bare client: %s requests/s", formatNumber(bare.perSecond()))
	if err := log.rewind(ctx); err != nil {
		return err
	}
	destination, err := r.destination(httpdest.Config{Endpoint: r.endpoint("")})
	if err != nil {
		return err
	}
	defer destination.Close()
	c := relay.DestinationConfig{Destination: destination, Concurrency: h.concurrency}
	relayed, err := s.carry(ctx, log, c, h.events)
	if err != nil {
		return err
	}
	if err := log.expectSettled(ctx, h.events, true); err != nil {
		return err
	}
	s.say("pillarbox: %s events/s", formatNumber(relayed.perSecond()))
	h.report.add("pillarbox_per_s", relayed.perSecond())
	h.report.add("bare_per_s", bare.perSecond())
	h.report.add("ratio", relayed.perSecond()/bare.perSecond())
	if s.serverPID != 0 { // both with the receiver's part, which is in this process
		h.report.add("pillarbox_cpu_us_per_event", relayed.cpuPerEvent())
		h.report.add("bare_cpu_us_per_event", bare.cpuPerEvent())
		h.report.add("cpu_ratio", bare.cpuPerEvent()/relayed.cpuPerEvent())
	}
	return nil
}

// bare sends the events out of memory through the destination alone.
func (h *overHTTP) bare(ctx context.Context, s *session, log *eventLog, r *receiver) (drained, error) {
	d := drained{events: h.events, settled: h.events}
	destination, err := r.destination(httpdest.Config{Endpoint: r.endpoint("")})
	if err != nil {
		return d, err
	}
	defer destination.Close()
	events := eventsInMemory(h.events)
	meter, err := s.startMeter(ctx, log.pool)
	if err != nil {
		return d, err
	}
	var next, failed atomic.Int64
	var workers sync.WaitGroup
	start := time.Now()
	for range h.concurrency {
		workers.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(events)); i = next.Add(1) - 1 {
				if !deliverOne(ctx, destination, &events[i]) {
					failed.Add(1)
				}
			}
		})
	}
	workers.Wait()
	d.seconds = time.Since(start).Seconds()
	if n := failed.Load(); n > 0 {
		return d, fmt.Errorf("the measurement is void: %d of %d requests failed", n, h.events)
	}
	d.spent, err = meter.stop(ctx)
	return d, err
}

// eventsInMemory are what a relay would have read of the log.
func eventsInMemory(n int) []relay.Event {
	events := make([]relay.Event, n)
	for i := range events {
		e := event(i)
		events[i] = relay.Event{
			Seq: int64(i), ID: fmt.Sprintf("01935f7e-0000-7000-8000-%012x", i), Topic: e.Topic, Key: e.Key,
			AggregateType: e.AggregateType, AggregateID: e.AggregateID, AggregateVersion: e.AggregateVersion,
			Type: e.Type, Version: 1, SchemaRef: e.SchemaRef, Payload: e.Payload, Headers: []byte("{}"),
		}
	}
	return events
}

// deliverOne makes one attempt under the timeout that the relay gives it by default.
func deliverOne(ctx context.Context, d relay.Destination, e *relay.Event) bool {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	outcomes := d.Deliver(ctx, []relay.Delivery{{Event: e, Attempt: 1}})
	return len(outcomes) == 1 && outcomes[0].Kind == relay.Published
}
