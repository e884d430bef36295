package telemetry

import (
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
)

// KafkaMetrics count what the producers of Kafka destinations do. They are a prometheus.Collector.
type KafkaMetrics struct {
	send, request, batchRecords, batchBytes, compression *prometheus.HistogramVec
	errors, records, written, read, connectFailures      *prometheus.CounterVec
}

var _ prometheus.Collector = (*KafkaMetrics)(nil)

// The bounds of the histograms of record batches: in records, in bytes, and how many times smaller compression makes them.
var (
	recordBuckets = []float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000}
	byteBuckets   = []float64{256, 1 << 10, 4 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20, 4 << 20}
	ratioBuckets  = []float64{1, 1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32}
)

// NewKafkaMetrics returns metrics that stand at zero. A destination appears when For is called for it.
func NewKafkaMetrics() *KafkaMetrics {
	label := []string{"destination"}
	histogram := func(name, help string, buckets []float64) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, label)
	}
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, label)
	}
	return &KafkaMetrics{
		send: histogram("kafka_producer_send_latency_ms",
			"From handing records to the producer to the acknowledgement by all replicas, one for each wave.", shortBuckets),
		request: histogram("kafka_producer_request_latency_ms",
			"From the first byte of a produce request to the last of its answer.", shortBuckets),
		batchRecords: histogram("kafka_producer_batch_records", "Records in a record batch.", recordBuckets),
		batchBytes:   histogram("kafka_producer_batch_bytes", "Bytes of the records of a record batch, compressed.", byteBuckets),
		compression: histogram("kafka_producer_compression_ratio",
			"How many times bigger the records of a batch were before compression.", ratioBuckets),
		errors:          counter("kafka_producer_error_total", "Records that were not acknowledged."),
		records:         counter("kafka_producer_records_total", "Records that were acknowledged; its rate is the send rate."),
		written:         counter("kafka_producer_written_bytes_total", "Bytes sent to the brokers."),
		read:            counter("kafka_producer_read_bytes_total", "Bytes received from the brokers."),
		connectFailures: counter("kafka_producer_connect_failure_total", "Connections to brokers that were refused, or not let in."),
	}
}

func (m *KafkaMetrics) all() []prometheus.Collector {
	return []prometheus.Collector{
		m.send, m.request, m.batchRecords, m.batchBytes, m.compression, m.errors, m.records, m.written, m.read, m.connectFailures,
	}
}

// Describe implements prometheus.Collector.
func (m *KafkaMetrics) Describe(out chan<- *prometheus.Desc) {
	for _, c := range m.all() {
		c.Describe(out)
	}
}

// Collect implements prometheus.Collector.
func (m *KafkaMetrics) Collect(out chan<- prometheus.Metric) {
	for _, c := range m.all() {
		c.Collect(out)
	}
}

// For returns what counts for one destination.
func (m *KafkaMetrics) For(destination string) *KafkaProducer {
	return &KafkaProducer{
		send: m.send.WithLabelValues(destination), request: m.request.WithLabelValues(destination),
		batchRecords: m.batchRecords.WithLabelValues(destination), batchBytes: m.batchBytes.WithLabelValues(destination),
		compression: m.compression.WithLabelValues(destination),
		errors:      m.errors.WithLabelValues(destination), records: m.records.WithLabelValues(destination),
		written: m.written.WithLabelValues(destination), read: m.read.WithLabelValues(destination),
		connectFailures: m.connectFailures.WithLabelValues(destination),
	}
}

// KafkaProducer is the observer of one destination in Kafka, and franz-go's hooks in its clients.
type KafkaProducer struct {
	send, request, batchRecords, batchBytes, compression prometheus.Observer
	errors, records, written, read, connectFailures      prometheus.Counter
}

var (
	_ kgo.HookBrokerConnect       = (*KafkaProducer)(nil)
	_ kgo.HookBrokerE2E           = (*KafkaProducer)(nil)
	_ kgo.HookProduceBatchWritten = (*KafkaProducer)(nil)
)

// keyProduce is the number of Kafka's request Produce.
const keyProduce = 0

// Sent is told of records that were acknowledged.
func (p *KafkaProducer) Sent(records int, took time.Duration) {
	p.records.Add(float64(records))
	p.send.Observe(milliseconds(took))
}

// Failed is told of records that were not.
func (p *KafkaProducer) Failed(records int, _ string) { p.errors.Add(float64(records)) }

// OnBrokerConnect implements kgo.HookBrokerConnect.
func (p *KafkaProducer) OnBrokerConnect(_ kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	if err != nil {
		p.connectFailures.Inc()
	}
}

// OnBrokerE2E implements kgo.HookBrokerE2E.
func (p *KafkaProducer) OnBrokerE2E(_ kgo.BrokerMetadata, key int16, e kgo.BrokerE2E) {
	p.written.Add(float64(e.BytesWritten))
	p.read.Add(float64(e.BytesRead))
	if key == keyProduce && e.Err() == nil {
		p.request.Observe(milliseconds(e.DurationE2E()))
	}
}

// OnProduceBatchWritten implements kgo.HookProduceBatchWritten.
func (p *KafkaProducer) OnProduceBatchWritten(_ kgo.BrokerMetadata, _ string, _ int32, b kgo.ProduceBatchMetrics) {
	p.batchRecords.Observe(float64(b.NumRecords))
	p.batchBytes.Observe(float64(b.CompressedBytes))
	if b.CompressedBytes > 0 {
		p.compression.Observe(float64(b.UncompressedBytes) / float64(b.CompressedBytes))
	}
}
