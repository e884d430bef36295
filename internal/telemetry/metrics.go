package telemetry

import (
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// OtherCode is the label of a code that is not known.
const OtherCode = "OTHER"

// MetricsConfig is what Metrics are made of. All fields are required.
type MetricsConfig struct {
	// Destinations are the values of the label destination.
	Destinations []string
	// Codes are the values of the label code, besides HTTP_100 to HTTP_599 and the relay's own.
	Codes []string
	// Status looks at the outbox, for the gauges.
	Status *StatusCache
	// Units are the relay's, for the breakers.
	Units func() []relay.UnitStatus
}

// Metrics count what a relay does. They are a relay.Observer and a prometheus.Collector.
type Metrics struct {
	relay.Unobserved
	byDestination map[string]*counters // never changes
	codes         map[string]bool      // never changes
	failures      *prometheus.CounterVec
	all           []prometheus.Collector
}

// counters are the metrics of one destination.
type counters struct {
	published, possibleDuplicate, leaseLost        prometheus.Counter
	publish, commitToPublish, settleTook, readTook prometheus.Observer
}

var (
	_ relay.Observer       = (*Metrics)(nil)
	_ prometheus.Collector = (*Metrics)(nil)
)

// The bounds of the histograms, in milliseconds: of calls and transactions, and of what an outage may stretch to days.
var (
	shortBuckets = []float64{0.25, 0.5, 1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 30_000}
	longBuckets  = []float64{1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 30_000, 60_000, 300_000,
		900_000, 3_600_000, 21_600_000, 86_400_000}
)

// NewMetrics returns metrics that stand at zero.
func NewMetrics(c MetricsConfig) *Metrics {
	m := &Metrics{byDestination: map[string]*counters{}, codes: map[string]bool{}}
	for _, code := range c.Codes {
		m.codes[code] = true
	}
	for _, code := range []string{
		relay.CodeTakeover, relay.CodeExhausted, relay.CodeCrashedRelay, relay.CodeRejectStorm, relay.CodeKeyTooLong,
	} {
		m.codes[code] = true
	}
	published := m.counter("outbox_publish_success_total", "Deliveries that were published, and written down as such.")
	m.failures = m.counter("outbox_publish_failure_total", "Attempts that did not publish, by code.", "code")
	duplicates := m.counter("outbox_possible_duplicate_total",
		"Deliveries that may have reached the receiver before: lost answers and takeovers.")
	leaseLost := m.counter("outbox_lease_lost_total", "Leases that another relay took while this one held them.")
	publish := m.histogram("outbox_publish_latency_ms", "From the read of an event to the settle of its delivery.", longBuckets)
	commit := m.histogram("outbox_commit_to_publish_latency_ms",
		"From created_at to the end of the attempt that published, by the database's clock.", longBuckets)
	settle := m.histogram("outbox_settle_latency_ms", "How long a settle takes in the database.", shortBuckets)
	read := m.histogram("outbox_read_latency_ms", "How long a read of the log takes in the database.", shortBuckets)
	for _, name := range c.Destinations {
		m.byDestination[name] = &counters{
			published: published.WithLabelValues(name), possibleDuplicate: duplicates.WithLabelValues(name),
			leaseLost: leaseLost.WithLabelValues(name),
			publish:   publish.WithLabelValues(name), commitToPublish: commit.WithLabelValues(name),
			settleTook: settle.WithLabelValues(name), readTook: read.WithLabelValues(name),
		}
	}
	m.all = append(m.all, newGauges(c))
	return m
}

func (m *Metrics) counter(name, help string, labels ...string) *prometheus.CounterVec {
	vec := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, append([]string{"destination"}, labels...))
	m.all = append(m.all, vec)
	return vec
}

func (m *Metrics) histogram(name, help string, buckets []float64) *prometheus.HistogramVec {
	vec := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, []string{"destination"})
	m.all = append(m.all, vec)
	return vec
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(out chan<- *prometheus.Desc) {
	for _, c := range m.all {
		c.Describe(out)
	}
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(out chan<- prometheus.Metric) {
	for _, c := range m.all {
		c.Collect(out)
	}
}

// Read implements relay.Observer.
func (m *Metrics) Read(destination string, _ int, took time.Duration) {
	if c := m.byDestination[destination]; c != nil {
		c.readTook.Observe(milliseconds(took))
	}
}

// Attempted implements relay.Observer.
func (m *Metrics) Attempted(destination string, attempts []relay.Attempt) {
	c := m.byDestination[destination]
	if c == nil {
		return
	}
	for i := range attempts {
		switch a := &attempts[i]; a.Outcome.Kind {
		case relay.Published:
			c.commitToPublish.Observe(milliseconds(max(0, a.Age)))
		case relay.Released:
		default:
			m.failures.WithLabelValues(destination, m.label(a.Code)).Inc()
		}
	}
}

// Settled implements relay.Observer.
func (m *Metrics) Settled(destination string, s relay.SettleReport) {
	c := m.byDestination[destination]
	if c == nil {
		return
	}
	c.settleTook.Observe(milliseconds(s.Took))
	c.published.Add(float64(s.Published))
	for _, latency := range s.Latencies {
		c.publish.Observe(milliseconds(latency))
	}
}

// Noticed implements relay.Observer.
func (m *Metrics) Noticed(destination string, n relay.Notice) {
	c := m.byDestination[destination]
	if c == nil {
		return
	}
	switch n.Kind {
	case relay.NoticePossibleDuplicate:
		c.possibleDuplicate.Add(float64(n.Count))
	case relay.NoticeLeaseLost:
		c.leaseLost.Inc()
	}
}

// label keeps the values of the label code to those that are known.
func (m *Metrics) label(code string) string {
	if m.codes[code] {
		return code
	}
	if digits, ok := strings.CutPrefix(code, "HTTP_"); ok && len(digits) == 3 {
		if status, err := strconv.Atoi(digits); err == nil && status >= 100 && status < 600 {
			return code
		}
	}
	return OtherCode
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
