package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"time"

	httpdest "github.com/pillarbox-dev/pillarbox/destination/http"
	"github.com/pillarbox-dev/pillarbox/relay"
	"github.com/pillarbox-dev/pillarbox/store/postgres"
)

// holed measures what an endpoint that accepts connections and never answers takes from the others of its destination: the
// rate at which their events arrive, against that of a run in which it answers like them.
type holed struct {
	events, endpoints, perEndpoint int
	timeout, takes                 time.Duration
	report                         report
}

func blackholeFlags(flags *flag.FlagSet) measurement {
	var h holed
	flags.IntVar(&h.events, "events", 200_000, "events in the log, spread evenly over the endpoints")
	flags.IntVar(&h.endpoints, "endpoints", 20, "how many endpoints there are; the first is the black hole")
	flags.DurationVar(&h.timeout, "timeout", 10*time.Second, "how long a delivery may take; 10s is the relay's default")
	flags.DurationVar(&h.takes, "answer-after", 0, "how long the receiver takes for an answer; 0: the processors are the limit, "+
		"otherwise the requests under way are")
	flags.IntVar(&h.perEndpoint, "per-endpoint", 0, "deliveries under way to one endpoint at once; 0: the destination's default")
	return h.measure
}

// endpointHeader is the event header that names the endpoint; keys are many, so that lanes do not bound an endpoint.
const endpointHeader = "supplier"

func endpointName(i int) string { return fmt.Sprintf("supplier-%02d", i) }

func (h *holed) measure(ctx context.Context, s *session) (*report, error) {
	if h.endpoints < 2 || h.events < 2*h.endpoints || h.perEndpoint < 0 || h.takes < 0 {
		return nil, errors.New("--endpoints must be at least 2, --events twice that, --per-endpoint and --answer-after not negative")
	}
	log, err := s.newLog(ctx, "blackhole", h.events)
	if err != nil {
		return nil, err
	}
	defer log.pool.Close()
	if err := log.addressTo(ctx, h.endpoints); err != nil {
		return nil, err
	}
	for n := range s.rounds {
		s.say("round %d of %d", n+1, s.rounds)
		if err := h.round(ctx, s, log); err != nil {
			return nil, err
		}
	}
	h.report.want("loss_percent", atMost(5))
	h.report.note("events", h.events)
	h.report.note("endpoints", h.endpoints)
	h.report.note("timeout_seconds", h.timeout.Seconds())
	h.report.note("answer_after_seconds", h.takes.Seconds())
	h.report.note("per_endpoint", h.perEndpoint)
	return &h.report, nil
}

// addressTo gives each event the header that names one of so many endpoints, in turn.
func (l *eventLog) addressTo(ctx context.Context, endpoints int) error {
	const address = `
update outbox_event set headers = json_build_object($1::text, 'supplier-' || lpad((seq % $2)::text, 2, '0'))`
	if _, err := l.pool.Exec(ctx, address, endpointHeader, endpoints); err != nil {
		return fmt.Errorf("address the events: %w", err)
	}
	return tidy(ctx, l.pool, "outbox_event")
}

func (h *holed) round(ctx context.Context, s *session, log *eventLog) (err error) {
	r, err := startReceiver()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.check(), r.close()) }()
	r.takes = h.takes
	hole, err := openBlackHole()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, hole.close()) }()

	healthy, err := h.othersPerSecond(ctx, s, log, r, r.endpoint(endpointName(0)))
	if err != nil {
		return fmt.Errorf("with all endpoints healthy: %w", err)
	}
	s.say("all healthy: %s events/s to the others", formatNumber(healthy))
	black := httpdest.Endpoint{URL: hole.url(), SecretFiles: []string{r.secretFile}}
	holed, err := h.othersPerSecond(ctx, s, log, r, black)
	if err != nil {
		return fmt.Errorf("with a black hole: %w", err)
	}
	s.say("one black hole: %s events/s to the others", formatNumber(holed))
	h.report.add("healthy_per_s", healthy)
	h.report.add("blackhole_per_s", holed)
	h.report.add("loss_percent", 100*(1-holed/healthy))
	return nil
}

// othersPerSecond runs the relay until every event for the endpoints besides the first has arrived.
func (h *holed) othersPerSecond(ctx context.Context, s *session, log *eventLog, r *receiver, first httpdest.Endpoint) (float64, error) {
	if err := log.rewind(ctx); err != nil {
		return 0, err
	}
	endpoints := httpdest.StaticEndpoints{endpointName(0): first}
	for i := 1; i < h.endpoints; i++ {
		endpoints[endpointName(i)] = r.endpoint(endpointName(i))
	}
	destination, err := r.destination(httpdest.Config{
		Endpoints: endpoints, EndpointHeader: endpointHeader, MaxInFlight: h.perEndpoint,
	})
	if err != nil {
		return 0, err
	}
	defer destination.Close()
	store, err := postgres.Open(ctx, postgres.Config{URL: log.url})
	if err != nil {
		return 0, err
	}
	defer store.Close()
	running, err := newRelay(store, relay.DestinationConfig{Destination: destination, Timeout: h.timeout}, nil)
	if err != nil {
		return 0, err
	}
	var others int
	const count = "select count(*) from outbox_event where headers->>$1 <> $2"
	if err := log.pool.QueryRow(ctx, count, endpointHeader, endpointName(0)).Scan(&others); err != nil {
		return 0, err
	}
	arrived := newQuota(others)
	r.watch.Store(&arrivals{arrived, func(endpoint string) bool { return endpoint != endpointName(0) }})
	start := time.Now()
	err = s.profiled(func() error { return runUntil(ctx, running, arrived) })
	return float64(others) / arrived.at.Sub(start).Seconds(), err
}
