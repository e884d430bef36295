package main

import "testing"

// TestKafka starts a broker, as the program does.
func TestKafka(t *testing.T) {
	got := measured(t, "kafka", "--events", "3000", "--textbook-events", "1000", "--single-events", "20", "--rounds", "1",
		"--partitions", "2", "--rate", "100", "--seconds", "1")
	wantPositive(t, got, "pillarbox_per_s", "textbook_batched_per_s", "textbook_single_per_s", "producer_per_s", "latency_p50_ms",
		"latency_p99_ms")
}

// TestDebezium also starts Kafka Connect, four times.
func TestDebezium(t *testing.T) {
	got := measured(t, "debezium", "--events", "2000", "--debezium-events", "500", "--rounds", "1")
	wantPositive(t, got, "pillarbox_per_s", "debezium_per_s", "debezium_many_per_s", "ratio", "ratio_many")
}
