package telemetry

import (
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestKafkaMetrics(t *testing.T) {
	m := NewKafkaMetrics()
	a := m.For("a")
	m.For("b")
	a.Sent(10, 2*time.Millisecond)
	a.Sent(5, 3*time.Millisecond)
	a.Failed(3, "TIMEOUT")
	a.OnBrokerConnect(kgo.BrokerMetadata{}, 0, nil, errors.New("refused"))
	a.OnBrokerConnect(kgo.BrokerMetadata{}, 0, nil, nil)
	a.OnBrokerE2E(kgo.BrokerMetadata{}, keyProduce, kgo.BrokerE2E{BytesWritten: 100, BytesRead: 20, TimeToWrite: time.Millisecond})
	a.OnBrokerE2E(kgo.BrokerMetadata{}, 3, kgo.BrokerE2E{BytesWritten: 7, BytesRead: 30})
	a.OnProduceBatchWritten(kgo.BrokerMetadata{}, "t", 0, kgo.ProduceBatchMetrics{NumRecords: 10, UncompressedBytes: 900, CompressedBytes: 300})

	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(m)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, metric := range f.GetMetric() {
			if labels := metric.GetLabel(); len(labels) != 1 || labels[0].GetName() != "destination" {
				t.Errorf("%s has the labels %v, want destination alone", f.GetName(), labels)
			}
			name := f.GetName() + " " + metric.GetLabel()[0].GetValue()
			if metric.Counter != nil {
				got[name] = metric.Counter.GetValue()
			} else {
				got[name] = metric.Histogram.GetSampleSum()
			}
		}
	}
	for name, want := range map[string]float64{
		"kafka_producer_send_latency_ms a": 5, "kafka_producer_error_total a": 3, "kafka_producer_records_total a": 15,
		"kafka_producer_request_latency_ms a": 1, "kafka_producer_batch_records a": 10, "kafka_producer_batch_bytes a": 300,
		"kafka_producer_compression_ratio a": 3, "kafka_producer_written_bytes_total a": 107, "kafka_producer_read_bytes_total a": 50,
		"kafka_producer_connect_failure_total a": 1, "kafka_producer_error_total b": 0, "kafka_producer_send_latency_ms b": 0,
	} {
		if value, there := got[name]; !there || value != want {
			t.Errorf("%s = %v (there: %v), want %v", name, value, there, want)
		}
	}
}
