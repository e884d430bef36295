package telemetry

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Summary is a histogram in a few numbers.
type Summary struct {
	Count uint64
	// Mean is 0 while there is nothing.
	Mean float64
	// P50 and P99 are the ends of the buckets that they fall into; 0: beyond the last, or there is nothing.
	P50, P99 float64
}

// Calls are how long the database takes for one destination, in milliseconds.
type Calls struct {
	Destination  string
	Read, Settle Summary
}

// Calls returns what was measured, for each destination.
func (m *Metrics) Calls() []Calls {
	var all []Calls
	for name, c := range m.byDestination {
		all = append(all, Calls{Destination: name, Read: summaryOf(c.readTook), Settle: summaryOf(c.settleTook)})
	}
	slices.SortFunc(all, func(a, b Calls) int { return cmp.Compare(a.Destination, b.Destination) })
	return all
}

// PossibleDuplicates is how many deliveries to a destination may have reached the receiver before.
func (m *Metrics) PossibleDuplicates(destination string) uint64 {
	c := m.byDestination[destination]
	if c == nil {
		return 0
	}
	return uint64(written(c.possibleDuplicate).GetCounter().GetValue())
}

// ProducerStats is what the Kafka producer of one destination has done.
type ProducerStats struct {
	Destination                      string
	Records, Errors, ConnectFailures uint64
	WrittenBytes, ReadBytes          int64
	// Send and Request are in milliseconds.
	Send, Request                         Summary
	BatchRecords, BatchBytes, Compression Summary
}

// Producers returns what was counted, for each destination.
func (m *KafkaMetrics) Producers() []ProducerStats {
	var all []ProducerStats
	for _, name := range labels(m.records) {
		p := m.For(name)
		all = append(all, ProducerStats{
			Destination: name, Records: counted(p.records), Errors: counted(p.errors), ConnectFailures: counted(p.connectFailures),
			WrittenBytes: int64(counted(p.written)), ReadBytes: int64(counted(p.read)),
			Send: summaryOf(p.send), Request: summaryOf(p.request),
			BatchRecords: summaryOf(p.batchRecords), BatchBytes: summaryOf(p.batchBytes), Compression: summaryOf(p.compression),
		})
	}
	return all
}

// labels returns the destinations that a vector has, sorted.
func labels(vec *prometheus.CounterVec) (names []string) {
	out := make(chan prometheus.Metric)
	go func() {
		vec.Collect(out)
		close(out)
	}()
	for metric := range out {
		for _, pair := range written(metric).GetLabel() {
			if pair.GetName() == "destination" {
				names = append(names, pair.GetValue())
			}
		}
	}
	slices.Sort(names)
	return names
}

func counted(c prometheus.Counter) uint64 { return uint64(written(c).GetCounter().GetValue()) }

// written is what a scrape would see; an empty metric when it cannot be written, which those of this package can.
func written(m prometheus.Metric) *dto.Metric {
	var out dto.Metric
	if m.Write(&out) != nil {
		return &dto.Metric{}
	}
	return &out
}

func summaryOf(o prometheus.Observer) Summary {
	metric, ok := o.(prometheus.Metric)
	if !ok {
		return Summary{}
	}
	h := written(metric).GetHistogram()
	s := Summary{Count: h.GetSampleCount()}
	if s.Count == 0 {
		return s
	}
	s.Mean = h.GetSampleSum() / float64(s.Count)
	s.P50, s.P99 = bucketOf(h, 0.5), bucketOf(h, 0.99)
	return s
}

// bucketOf returns the end of the bucket that holds a quantile.
func bucketOf(h *dto.Histogram, quantile float64) float64 {
	rank := uint64(math.Ceil(quantile * float64(h.GetSampleCount())))
	for _, b := range h.GetBucket() {
		if b.GetCumulativeCount() >= rank && !math.IsInf(b.GetUpperBound(), 1) {
			return b.GetUpperBound()
		}
	}
	return 0
}

// Millis turns milliseconds of a Summary into a duration.
func Millis(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }
