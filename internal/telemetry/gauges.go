package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// gauges are what is not counted but looked at, when somebody asks. While the database does not answer, those that come from it
// are left out: an old number would look like a good one.
type gauges struct {
	config                                MetricsConfig
	pending, oldest, quarantined, breaker *prometheus.Desc
}

func newGauges(c MetricsConfig) *gauges {
	describe := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, []string{"destination"}, nil)
	}
	return &gauges{
		config: c,
		pending: describe("outbox_pending_count",
			"Events that are not delivered yet: waiting, under way, or failed and to be tried again. Above 5,000 in the log estimated; in the ledger counted up to 10,000 of each status."),
		oldest: describe("outbox_oldest_pending_age_seconds",
			"How long the oldest of them could have been delivered."),
		quarantined: describe("outbox_quarantined_count",
			"Deliveries that wait for an operator. Counted up to 10,000."),
		breaker: describe("outbox_breaker_open",
			"Endpoints that this relay leaves alone because they are down or paused."),
	}
}

func (g *gauges) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{g.pending, g.oldest, g.quarantined, g.breaker} {
		out <- d
	}
}

func (g *gauges) Collect(out chan<- prometheus.Metric) {
	known := map[string]bool{}
	for _, name := range g.config.Destinations {
		known[name] = true
	}
	gauge := func(d *prometheus.Desc, value float64, name string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, name)
	}
	units := g.config.Units()
	for name := range known {
		gauge(g.breaker, float64(leftAlone(units, name)), name)
	}
	status, err := g.config.Status.Get()
	if err != nil {
		return
	}
	for _, d := range status.Destinations {
		if known[d.Destination] {
			gauge(g.pending, float64(d.Pending.N+d.Failed.N), d.Destination)
			gauge(g.oldest, time.Duration(d.OldestPendingAge).Seconds(), d.Destination)
			gauge(g.quarantined, float64(d.Quarantined.N), d.Destination)
		}
	}
}

// leftAlone counts the endpoints of a destination that one of its shards, or several, leave alone.
func leftAlone(units []relay.UnitStatus, destination string) int {
	endpoints := map[string]bool{}
	for _, unit := range units {
		for _, e := range unit.Endpoints {
			if unit.Destination == destination && (e.State == "open" || e.State == "paused" || e.State == "probing") {
				endpoints[e.Endpoint] = true
			}
		}
	}
	return len(endpoints)
}
