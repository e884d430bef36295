package wire

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pillarbox-dev/pillarbox/dashboard"
	"github.com/pillarbox-dev/pillarbox/internal/config"
	"github.com/pillarbox-dev/pillarbox/internal/telemetry"
	"github.com/pillarbox-dev/pillarbox/ops"
)

// facts are what this process knows and the database does not, for the dashboard.
type facts struct {
	metrics *telemetry.Metrics
	kafka   *telemetry.KafkaMetrics
	rates   *rates
}

func newFacts(metrics *telemetry.Metrics, kafka *telemetry.KafkaMetrics) *facts {
	return &facts{metrics: metrics, kafka: kafka, rates: &rates{last: map[string]counting{}}}
}

func (f *facts) latencies() (all []dashboard.Latency) {
	for _, calls := range f.metrics.Calls() {
		all = append(all, latency(calls.Destination, "read", calls.Read), latency(calls.Destination, "settle", calls.Settle))
	}
	return all
}

func (f *facts) producers() (all []dashboard.Producer) {
	for _, p := range f.kafka.Producers() {
		all = append(all, dashboard.Producer{
			Destination: p.Destination, Records: p.Records, Errors: p.Errors,
			RatePerSecond: f.rates.of(p.Destination, p.Records, time.Now()),
			WrittenBytes:  p.WrittenBytes, ReadBytes: p.ReadBytes, ConnectFailures: p.ConnectFailures,
			Send: latency(p.Destination, "send", p.Send), Request: latency(p.Destination, "request", p.Request),
			BatchRecords: p.BatchRecords.Mean, BatchBytes: int64(p.BatchBytes.Mean), Compression: p.Compression.Mean,
		})
	}
	return all
}

func latency(destination, what string, s telemetry.Summary) dashboard.Latency {
	seconds := func(ms float64) ops.Seconds { return ops.Seconds(telemetry.Millis(ms)) }
	return dashboard.Latency{
		Destination: destination, What: what, Count: s.Count, Mean: seconds(s.Mean), P50: seconds(s.P50), P99: seconds(s.P99),
	}
}

// endpoints lists where one destination goes, out of the configuration or of the table.
func endpoints(c *config.Config, look *ops.Ops) func(context.Context, string) ([]ops.Endpoint, error) {
	return func(ctx context.Context, name string) ([]ops.Endpoint, error) {
		destination := c.Destinations[name]
		if destination.Kafka != nil {
			return []ops.Endpoint{{Address: strings.Join(destination.Kafka.Brokers, ", "), Enabled: true}}, nil
		}
		h := destination.HTTP
		switch {
		case h == nil:
			return nil, nil
		case h.EndpointTable:
			return look.Endpoints(ctx, name)
		case len(h.Endpoints) == 0:
			return []ops.Endpoint{{Address: ops.PlainAddress(h.URL.Reveal()), Enabled: true}}, nil
		}
		var all []ops.Endpoint
		for _, endpoint := range slices.Sorted(maps.Keys(h.Endpoints)) {
			all = append(all, ops.Endpoint{
				Endpoint: endpoint, Address: ops.PlainAddress(h.Endpoints[endpoint].URL.Reveal()), Enabled: true,
			})
		}
		return all, nil
	}
}

// rateOver is the least time over which a rate is taken.
const rateOver = 2 * time.Second

// rates make rates out of counters, however often and by however many they are looked at.
type rates struct {
	mu   sync.Mutex
	last map[string]counting // by destination
}

// counting is where a counter stood when its rate was last taken.
type counting struct {
	at    time.Time
	count uint64
	rate  float64
}

func (r *rates) of(name string, count uint64, now time.Time) float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	last, seen := r.last[name]
	switch passed := now.Sub(last.at); {
	case !seen:
		r.last[name] = counting{at: now, count: count}
	case passed >= rateOver:
		r.last[name] = counting{now, count, float64(count-last.count) / passed.Seconds()}
	}
	return r.last[name].rate
}
