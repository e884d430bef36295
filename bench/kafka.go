package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pillarbox-dev/pillarbox/destination/kafka"
	"github.com/pillarbox-dev/pillarbox/internal/kafkatest"
	"github.com/pillarbox-dev/pillarbox/outbox"
	"github.com/pillarbox-dev/pillarbox/relay"
	"github.com/pillarbox-dev/pillarbox/store/postgres"
)

// toKafka measures how fast a full log goes to a real broker, beside the textbook relay and the bare producer in the same run,
// and how long an event takes from its commit to the broker's acknowledgement.
type toKafka struct {
	events, textbookEvents, singleEvents int
	partitions, batch, batchSize         int
	linger                               time.Duration
	rate, seconds                        float64
	cluster                              *kafkatest.Cluster
	topics                               int
	report                               report
}

func kafkaFlags(flags *flag.FlagSet) measurement {
	var k toKafka
	flags.IntVar(&k.events, "events", 300_000, "how many events Pillarbox and the bare producer send in a round")
	flags.IntVar(&k.textbookEvents, "textbook-events", 50_000, "how many the batched textbook relay sends, at most --events")
	flags.IntVar(&k.singleEvents, "single-events", 3000, "how many the one that sends one at a time does, at most --events")
	flags.IntVar(&k.partitions, "partitions", 6, "of the topic")
	flags.IntVar(&k.batch, "batch", 0, "max_batch of the destination; default: its own")
	flags.IntVar(&k.batchSize, "batch-size", 0, "batch_size of the destination, in bytes; default: its own")
	flags.DurationVar(&k.linger, "linger", 0, "linger of the destination")
	flags.Float64Var(&k.rate, "rate", 1000, "for the latency: transactions per second, of one event each")
	flags.Float64Var(&k.seconds, "seconds", 10, "for the latency: how long a round takes, after a fifth of it that is not counted")
	return k.measure
}

func (k *toKafka) measure(ctx context.Context, s *session) (_ *report, err error) {
	if k.events < 2 || k.textbookEvents < 1 || k.singleEvents < 1 || k.partitions < 1 || k.rate*k.seconds < 1 {
		return nil, errors.New("--events must be at least 2; --textbook-events, --single-events, --partitions, and --rate times " +
			"--seconds at least 1")
	}
	k.textbookEvents, k.singleEvents = min(k.textbookEvents, k.events), min(k.singleEvents, k.events)
	s.say("start Kafka")
	if k.cluster, err = kafkatest.Start(kafkatest.Options{Heap: "1g"}); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, k.cluster.Stop()) }()
	log, err := s.newLog(ctx, "kafka", k.events)
	if err != nil {
		return nil, err
	}
	defer log.pool.Close()
	steady, err := s.newLog(ctx, "kafka_latency", 0)
	if err != nil {
		return nil, err
	}
	defer steady.pool.Close()
	// What a broker does first it does slowly.
	if _, err := k.producer(ctx, min(k.events, 50_000)); err != nil {
		return nil, err
	}
	for n := range s.rounds {
		s.say("round %d of %d", n+1, s.rounds)
		if err := k.round(ctx, s, log, steady); err != nil {
			return nil, err
		}
	}
	k.conclude()
	return &k.report, nil
}

func (k *toKafka) round(ctx context.Context, s *session, log, steady *eventLog) error {
	broker, err := k.brokerCPU()
	if err != nil {
		return err
	}
	relayed, err := k.pillarbox(ctx, s, log)
	if err != nil {
		return err
	}
	brokerAfter, err := k.brokerCPU()
	if err != nil {
		return err
	}
	s.say("pillarbox: %s events/s", formatNumber(relayed.perSecond()))
	k.report.add("pillarbox_per_s", relayed.perSecond())
	batched, err := k.textbook(ctx, s, log, indexed(), k.textbookEvents, false)
	if err != nil {
		return err
	}
	k.report.add("textbook_batched_per_s", batched)
	single, err := k.textbook(ctx, s, log, asWritten(), k.singleEvents, true)
	if err != nil {
		return err
	}
	k.report.add("textbook_single_per_s", single)
	bare, err := k.producer(ctx, k.events)
	if err != nil {
		return err
	}
	s.say("bare producer: %s records/s", formatNumber(bare))
	k.report.add("producer_per_s", bare)
	k.report.add("ratio_batched", relayed.perSecond()/batched)
	perEvent := func(worked time.Duration) float64 { return float64(worked.Microseconds()) / float64(relayed.settled) }
	k.report.add("relay_cpu_us_per_event", perEvent(relayed.cpu.own))
	k.report.add("database_cpu_us_per_event", perEvent(relayed.cpu.server))
	k.report.add("broker_cpu_us_per_event", perEvent(brokerAfter-broker))
	k.report.add("relay_peak_rss_mb", megabytes(relayed.resident))
	return k.latency(ctx, s, steady)
}

func (k *toKafka) conclude() {
	r := &k.report
	r.want("pillarbox_per_s", atLeast(120_000))
	r.want("ratio_batched", atLeast(8))
	r.want("latency_p50_ms", atMost(3))
	r.want("latency_p99_ms", atMost(10))
	r.note("events", k.events)
	r.note("textbook_events", k.textbookEvents)
	r.note("single_events", k.singleEvents)
	r.note("partitions", k.partitions)
	r.note("linger_ms", milliseconds(k.linger))
	r.note("rate", k.rate)
	r.note("seconds", k.seconds)
	r.note("payload_bytes", payloadSize)
}

// brokerCPU is how long processors have worked for the broker.
func (k *toKafka) brokerCPU() (time.Duration, error) {
	stat, err := readStat(k.cluster.Brokers[0].PID())
	if err != nil {
		return 0, fmt.Errorf("read the processor time of Kafka: %w", err)
	}
	return stat.worked, nil
}

// newTopic makes a topic for one measurement, so that none finds what another left.
func (k *toKafka) newTopic(ctx context.Context) (string, error) {
	k.topics++
	name := fmt.Sprintf("bench-%d", k.topics)
	return name, k.cluster.CreateTopic(ctx, name, int32(k.partitions), nil)
}

// expectRecords counts in the topic: a drain that did not do its work has no speed.
func (k *toKafka) expectRecords(ctx context.Context, topic string, want int) error {
	client, err := k.cluster.Client()
	if err != nil {
		return err
	}
	defer client.Close()
	ends, err := kadm.NewClient(client).ListEndOffsets(ctx, topic)
	if err != nil {
		return err
	}
	got := int64(0)
	ends.Each(func(o kadm.ListedOffset) { got += o.Offset })
	if got != int64(want) {
		return fmt.Errorf("the measurement is void: %d records in %s, want %d", got, topic, want)
	}
	return nil
}

func (k *toKafka) destination(topic string) (*kafka.Destination, error) {
	return kafka.New(kafka.Config{
		Brokers: k.cluster.Seeds(), Topic: topic, MaxBatch: k.batch, BatchSize: k.batchSize, Linger: k.linger,
	})
}

// pillarbox drains the log into a topic of its own.
func (k *toKafka) pillarbox(ctx context.Context, s *session, log *eventLog) (carried, error) {
	if err := log.rewind(ctx); err != nil {
		return carried{}, err
	}
	topic, err := k.newTopic(ctx)
	if err != nil {
		return carried{}, err
	}
	d, err := k.destination(topic)
	if err != nil {
		return carried{}, err
	}
	defer d.Close()
	result, err := s.carry(ctx, log, relay.DestinationConfig{Destination: d}, k.events)
	if err != nil {
		return result, err
	}
	return result, errors.Join(log.expectSettled(ctx, k.events, true), k.expectRecords(ctx, topic, k.events))
}

// textbook drains the textbook table into a topic of its own, with the bare client.
func (k *toKafka) textbook(ctx context.Context, s *session, log *eventLog, t textbook, n int, single bool) (float64, error) {
	if err := t.prepare(ctx, log.pool, n); err != nil {
		return 0, err
	}
	topic, err := k.newTopic(ctx)
	if err != nil {
		return 0, err
	}
	client, err := k.client()
	if err != nil {
		return 0, err
	}
	defer client.Close()
	result, err := t.drain(ctx, s, log.pool, bareKafka{client, topic, single}, n)
	if err := errors.Join(err, k.expectRecords(ctx, topic, n)); err != nil {
		return 0, err
	}
	what := "batched"
	if single {
		what = "one at a time"
	}
	s.say("textbook, %s: %s events/s", what, formatNumber(result.perSecond()))
	return result.perSecond(), t.drop(ctx, log.pool)
}

// client is a franz-go client as one would set it up: its defaults are acks=all and idempotence.
func (k *toKafka) client() (*kgo.Client, error) {
	return k.cluster.Client(kgo.ProducerBatchCompression(kgo.ZstdCompression()), kgo.MaxBufferedRecords(50_000))
}

// bareKafka publishes the batches of the textbook relay.
type bareKafka struct {
	client *kgo.Client
	topic  string
	single bool // one at a time, as most write-ups have it
}

func (b bareKafka) Deliver(ctx context.Context, batch []relay.Delivery) []relay.Outcome {
	outcomes := make([]relay.Outcome, len(batch))
	records := make([]*kgo.Record, len(batch))
	for i, d := range batch {
		records[i] = bareRecord(b.topic, d.Event)
		if b.single {
			outcomes[i] = published(b.client.ProduceSync(ctx, records[i])[0].Err)
		}
	}
	if !b.single {
		for i, r := range b.client.ProduceSync(ctx, records...) {
			outcomes[i] = published(r.Err)
		}
	}
	return outcomes
}

func published(err error) relay.Outcome {
	if err != nil {
		return relay.Outcome{Code: "FAILED", Message: err.Error()}
	}
	return relay.Outcome{Kind: relay.Published}
}

func bareRecord(topic string, e *relay.Event) *kgo.Record {
	return &kgo.Record{Topic: topic, Key: []byte(e.Key), Value: e.Payload, Headers: []kgo.RecordHeader{
		{Key: "eventId", Value: []byte(e.ID)}, {Key: "eventType", Value: []byte(e.Type)},
		{Key: "eventVersion", Value: []byte("1")}, {Key: "schemaRef", Value: []byte(e.SchemaRef)},
	}}
}

// producer sends n events out of memory, with nothing but the client, and returns the records per second.
func (k *toKafka) producer(ctx context.Context, n int) (float64, error) {
	topic, err := k.newTopic(ctx)
	if err != nil {
		return 0, err
	}
	client, err := k.client()
	if err != nil {
		return 0, err
	}
	defer client.Close()
	events := eventsInMemory(n)
	start := time.Now()
	var failed error // written by the one goroutine that calls promises, read after the flush
	for i := range events {
		client.Produce(ctx, bareRecord(topic, &events[i]), func(_ *kgo.Record, err error) { failed = errors.Join(failed, err) })
	}
	if err := client.Flush(ctx); err != nil || failed != nil {
		return 0, errors.Join(err, failed)
	}
	took := time.Since(start).Seconds()
	return float64(n) / took, k.expectRecords(ctx, topic, n)
}

// latency measures one round at a steady rate, as the command latency does.
func (k *toKafka) latency(ctx context.Context, s *session, log *eventLog) error {
	topic, err := k.newTopic(ctx)
	if err != nil {
		return err
	}
	d, err := k.destination(topic)
	if err != nil {
		return err
	}
	defer d.Close()
	warmUp, counted := int(k.rate*k.seconds/5), int(k.rate*k.seconds)
	syscall.Sync() // what the drains have left in the page cache is not this measurement's; tidy does the same for PostgreSQL
	s.say("%g transactions per second for %g s", k.rate, k.seconds*1.2)
	events, err := s.loadTo(ctx, log, d, warmUp+counted, time.Duration(float64(time.Second)/k.rate))
	if err != nil {
		return err
	}
	fromCommit := sortedBy(events[warmUp:], func(t timing) time.Duration { return t.acknowledged - t.committed })
	k.report.add("latency_p50_ms", milliseconds(percentile(fromCommit, 0.50)))
	k.report.add("latency_p99_ms", milliseconds(percentile(fromCommit, 0.99)))
	return k.expectRecords(ctx, topic, warmUp+counted)
}

// loadTo is load with a destination in place of the null one.
func (s *session) loadTo(
	ctx context.Context, log *eventLog, to relay.Destination, n int, interval time.Duration,
) ([]timing, error) {
	if err := log.empty(ctx); err != nil {
		return nil, err
	}
	store, err := postgres.Open(ctx, postgres.Config{URL: log.url})
	if err != nil {
		return nil, err
	}
	defer store.Close()
	box, err := outbox.New(outbox.Postgres, outbox.Options{})
	if err != nil {
		return nil, err
	}
	l := newLoad(log.pool, box, n, interval)
	r, err := newRelay(store, relay.DestinationConfig{Destination: loaded{to, l}}, nil)
	if err != nil {
		return nil, err
	}
	if err := s.profiled(func() error { return l.run(ctx, r, 16) }); err != nil {
		return nil, err
	}
	return l.timings(), nil
}

// loaded tells a load when a destination has its events.
type loaded struct {
	relay.Destination
	load *load
}

func (d loaded) MaxBatch() int { return d.Destination.(relay.Batcher).MaxBatch() }

func (d loaded) Deliver(ctx context.Context, batch []relay.Delivery) []relay.Outcome {
	outcomes := d.Destination.Deliver(ctx, batch)
	arrived := make([]relay.Delivery, 0, len(batch))
	for i, o := range outcomes {
		if o.Kind == relay.Published {
			arrived = append(arrived, batch[i])
		}
	}
	d.load.Deliver(ctx, arrived)
	return outcomes
}
