package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net/url"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pillarbox-dev/pillarbox/internal/kafkatest"
)

// beside measures the same way from PostgreSQL to Kafka as Debezium's outbox event router goes it, in the same run, on the same
// server and broker. Debezium is tuned; it is timed from the first record that arrives to the last, so the start of its JVM is not
// counted, and a warm-up comes before. Pillarbox is timed from its start to its last settle.
type beside struct {
	toKafka
	debeziumEvents, perTransaction int
}

func debeziumFlags(flags *flag.FlagSet) measurement {
	b := beside{toKafka: toKafka{partitions: 6}}
	flags.IntVar(&b.events, "events", 300_000, "how many events Pillarbox sends in a round")
	flags.IntVar(&b.debeziumEvents, "debezium-events", 150_000, "how many Debezium does")
	flags.IntVar(&b.perTransaction, "per-transaction", 100, "events in each transaction of the second measurement of Debezium; the first has one")
	return b.measure
}

func (b *beside) measure(ctx context.Context, s *session) (_ *report, err error) {
	if b.events < 2 || b.debeziumEvents < 2 || b.perTransaction < 1 {
		return nil, errors.New("--events and --debezium-events must be at least 2, --per-transaction at least 1")
	}
	s.say("start Kafka")
	if b.cluster, err = kafkatest.Start(kafkatest.Options{Heap: "1g"}); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.cluster.Stop()) }()
	log, err := s.newLog(ctx, "debezium", b.events)
	if err != nil {
		return nil, err
	}
	defer log.pool.Close()
	for n := range s.rounds {
		s.say("round %d of %d", n+1, s.rounds)
		if err := b.round(ctx, s, log, n); err != nil {
			return nil, err
		}
	}
	b.report.want("ratio", atLeast(8))
	b.report.note("events", b.events)
	b.report.note("debezium_events", b.debeziumEvents)
	b.report.note("per_transaction", b.perTransaction)
	b.report.note("partitions", b.partitions)
	b.report.note("payload_bytes", payloadSize)
	b.report.note("debezium", kafkatest.DebeziumVersion)
	return &b.report, nil
}

func (b *beside) round(ctx context.Context, s *session, log *eventLog, n int) error {
	relayed, err := b.pillarbox(ctx, s, log)
	if err != nil {
		return err
	}
	s.say("pillarbox: %s events/s", formatNumber(relayed.perSecond()))
	single, err := b.debezium(ctx, s, log, fmt.Sprintf("single%d", n), 1)
	if err != nil {
		return err
	}
	many, err := b.debezium(ctx, s, log, fmt.Sprintf("many%d", n), b.perTransaction)
	if err != nil {
		return err
	}
	b.report.add("pillarbox_per_s", relayed.perSecond())
	b.report.add("debezium_per_s", single)
	b.report.add("debezium_many_per_s", many)
	b.report.add("ratio", relayed.perSecond()/single)
	b.report.add("ratio_many", relayed.perSecond()/many)
	return nil
}

// debezium drains a table of its own into a topic of its own and returns the records per second.
func (b *beside) debezium(ctx context.Context, s *session, log *eventLog, name string, perTransaction int) (float64, error) {
	// The warm-up makes the slot, so that what is written from then on waits in the WAL for the measurement.
	topic := "outbox.event." + name
	setUp := fmt.Sprintf(`
create table %[1]s (id uuid primary key default gen_random_uuid(), aggregatetype text not null, aggregateid text not null,
  type text not null, payload text not null);
create publication %[1]s for table %[1]s with (publish = 'insert')`, name)
	if _, err := log.pool.Exec(ctx, setUp); err != nil {
		return 0, fmt.Errorf("make the table for Debezium: %w", err)
	}
	if err := b.cluster.CreateTopic(ctx, topic, int32(b.partitions), nil); err != nil {
		return 0, err
	}
	client, err := b.cluster.Client(kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return 0, err
	}
	defer client.Close()
	const warmUp = 2000
	if _, err := b.run(ctx, log, client, name, warmUp, func() error { return insertFor(ctx, log, name, 0, warmUp, 1) }); err != nil {
		return 0, err
	}
	if err := insertFor(ctx, log, name, warmUp, b.debeziumEvents, perTransaction); err != nil {
		return 0, err
	}
	took, err := b.run(ctx, log, client, name, b.debeziumEvents, func() error { return nil })
	if err != nil {
		return 0, err
	}
	rate := float64(b.debeziumEvents-1) / took.Seconds()
	s.say("Debezium, %d in a transaction: %s events/s", perTransaction, formatNumber(rate))
	tearDown := fmt.Sprintf("select pg_drop_replication_slot('%[1]s'); drop publication %[1]s; drop table %[1]s", name)
	if _, err := log.pool.Exec(ctx, tearDown); err != nil {
		return 0, fmt.Errorf("clean up after Debezium: %w", err)
	}
	return rate, nil
}

// run starts Debezium, waits for n records, and ends it. It returns the time from the first record to the last.
func (b *beside) run(
	ctx context.Context, log *eventLog, client *kgo.Client, name string, n int, started func() error,
) (took time.Duration, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, 5*time.Minute, errors.New("it took Debezium more than five minutes"))
	defer cancel()
	connector, err := connectorSettings(log.url, name)
	if err != nil {
		return 0, err
	}
	worker, err := b.cluster.StartConnect(name, map[string]string{
		"key.converter":                           "org.apache.kafka.connect.storage.StringConverter",
		"value.converter":                         "org.apache.kafka.connect.storage.StringConverter",
		"offset.flush.interval.ms":                "1000",
		"connector.client.config.override.policy": "All",
	}, connector)
	if err != nil {
		return 0, err
	}
	defer func() {
		ending, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), time.Minute, errors.New("its slot is still in use a minute after its end"))
		defer cancel()
		err = errors.Join(err, worker.Kill(), awaitSlot(ending, log, name, false))
	}()
	go func() {
		select {
		case <-worker.Ended():
			cancel()
		case <-ctx.Done():
		}
	}()
	if err := awaitSlot(ctx, log, name, true); err != nil {
		return 0, fmt.Errorf("%w\n%s", err, worker.Log())
	}
	if err := started(); err != nil {
		return 0, err
	}
	var first time.Time
	for got := 0; got < n; {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			return 0, fmt.Errorf("%d of %d records came from Debezium: %w\n%s", got, n, context.Cause(ctx), worker.Log())
		}
		if err := fetches.Err(); err != nil {
			return 0, err
		}
		if got += fetches.NumRecords(); got > 0 && first.IsZero() {
			first = time.Now()
		}
	}
	took = time.Since(first)
	return took, sleep(ctx, 2*time.Second) // it writes its offsets each second
}

// awaitSlot waits until the connector reads the WAL, or has let go of it.
func awaitSlot(ctx context.Context, log *eventLog, name string, active bool) error {
	for {
		const sql = "select coalesce(bool_or(active), false) from pg_replication_slots where slot_name = $1"
		var is bool
		if err := log.pool.QueryRow(ctx, sql, name).Scan(&is); err != nil {
			return fmt.Errorf("look for the slot of Debezium: %w", err)
		}
		if is == active {
			return nil
		}
		if err := sleep(ctx, 50*time.Millisecond); err != nil {
			return fmt.Errorf("wait for the slot of Debezium: %w", err)
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// insertFor writes events as a service that uses Debezium would.
func insertFor(ctx context.Context, log *eventLog, table string, first, n, perTransaction int) error {
	before, behind := payloadParts()
	sql := fmt.Sprintf(`
do $$
begin
  for i in %[2]d .. %[3]d by %[4]d loop
    insert into %[1]s (aggregatetype, aggregateid, type, payload)
    select '%[1]s', 'case-' || abs(hashint8(k)::bigint) %% %[5]d, '%[6]s', '%[7]s' || lpad(k::text, %[8]d, '0') || '%[9]s'
      from generate_series(i, least(i + %[4]d - 1, %[3]d)) k;
    commit;
  end loop;
end $$`, table, first+1, first+n, perTransaction, aggregates, eventType, before, digits, behind)
	conn, err := log.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	// The filling is not measured, so it need not wait for the disk.
	if _, err := conn.Exec(ctx, "set synchronous_commit = off"); err != nil {
		return err
	}
	_, err = conn.Exec(ctx, sql)
	_, resetErr := conn.Exec(context.WithoutCancel(ctx), "reset synchronous_commit")
	if err := errors.Join(err, resetErr); err != nil {
		return fmt.Errorf("fill the table for Debezium: %w", err)
	}
	return nil
}

// connectorSettings are Debezium's outbox event router, tuned: bigger batches and queues, a short poll, and a producer that gathers and
// compresses as ours does.
func connectorSettings(database, name string) (map[string]string, error) {
	u, err := url.Parse(database)
	if err != nil {
		return nil, err
	}
	password, _ := u.User.Password()
	all := map[string]string{
		"name": name, "connector.class": "io.debezium.connector.postgresql.PostgresConnector", "tasks.max": "1",
		"database.hostname": u.Hostname(), "database.port": u.Port(), "database.user": u.User.Username(),
		"database.password": password, "database.dbname": u.Path[1:],
		"topic.prefix": name, "plugin.name": "pgoutput", "slot.name": name, "publication.name": name,
		"publication.autocreate.mode": "disabled", "snapshot.mode": "no_data", "tombstones.on.delete": "false",
		"table.include.list": "public." + name,
		"transforms":         "outbox", "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",
	}
	maps.Copy(all, map[string]string{
		"max.batch.size": "20480", "max.queue.size": "81920", "poll.interval.ms": "10",
		"producer.override.linger.ms": "5", "producer.override.batch.size": "262144", "producer.override.compression.type": "zstd",
	})
	return all, nil
}
