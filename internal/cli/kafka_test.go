package cli

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/internal/kafkatest"
	"github.com/pillarbox-dev/pillarbox/internal/pgtest"
	"github.com/pillarbox-dev/pillarbox/outbox"
)

// With ten lines of configuration events go from PostgreSQL to Kafka. The relay, the broker and the database are killed in turn
// under load; nothing is lost, nothing false, and each key is in order.
func TestRunToKafka(t *testing.T) {
	cluster := kafkatest.New(t, kafkatest.Options{})
	if err := cluster.CreateTopic(t.Context(), "orders", 3, nil); err != nil {
		t.Fatal(err)
	}
	server := pgtest.New(t, pgtest.Options{})
	r := &rig{t: t, url: server.Database(t), receiver: newReceiver(t)}
	db, err := sql.Open("pgx", r.url)
	r.open(db, err, outbox.Postgres)
	file := writeFile(t, "kafka.yaml", fmt.Sprintf(`
database:
  url: %q
listen: 127.0.0.1:0
log: {format: json, attempts: false}
relay: {lease: 3s}
destinations:
  events:
    timeout: 2s
    kafka: {brokers: [%q]}
`, r.url, cluster.Seeds()[0]))
	must(t, "check", "-c", file)

	relays := []*program{start(t, "run", "-c", file), start(t, "run", "-c", file)}
	for _, relay := range relays {
		relay.address()
	}
	p := &producer{rig: r, committed: map[string]bool{}, rolledBack: map[string]bool{}, keys: map[string][]string{}}
	p.produce(100)
	within(t, 30*time.Second, "the first events", func() bool { return published(r) >= len(p.committed) })

	t.Log("the broker is down while events are committed")
	if err := cluster.Brokers[0].Kill(); err != nil {
		t.Fatal(err)
	}
	p.produce(300)
	if err := cluster.Brokers[0].Up(); err != nil {
		t.Fatal(err)
	}
	p.produce(100)

	t.Log("the relay that has the lease is killed")
	var owner string
	within(t, 30*time.Second, "a relay with the lease", func() bool { owner = r.owner(); return owner != "" })
	victim := slices.IndexFunc(relays, func(p *program) bool { return strings.Contains(owner, fmt.Sprintf("-%d-", p.cmd.Process.Pid)) })
	if victim < 0 {
		t.Fatalf("the lease is with %q, none of the relays", owner)
	}
	relays[victim].kill()
	p.produce(100)

	t.Log("the database is killed")
	if err := server.Restart(pgtest.Immediate); err != nil {
		t.Fatal(err)
	}
	within(t, 30*time.Second, "the producer's connection", func() bool { return db.PingContext(context.Background()) == nil })
	p.produce(100)
	within(t, 60*time.Second, "every committed event", func() bool { return published(r) >= len(p.committed) })
	survivor := relays[1-victim]
	wantKafkaMetrics(t, survivor.address())
	if code := survivor.stop(); code != 0 {
		t.Errorf("the survivor ended with %d, want 0", code)
	}
	p.judgeRecords(cluster)
}

// published counts the deliveries that are settled; 0 while the database is away.
func published(r *rig) (n int) {
	_ = r.db.QueryRowContext(context.Background(), "select count(*) from outbox_delivery where status = 'PUBLISHED'").Scan(&n)
	return n
}

// judgeRecords compares what was committed with what the topic holds.
func (p *producer) judgeRecords(cluster *kafkatest.Cluster) {
	p.t.Helper()
	seen := map[string]bool{}
	inOrder := map[string][]string{}
	records := cluster.Records(p.t, "orders", len(p.committed))
	for _, r := range records {
		id := string(r.Headers[0].Value)
		if !p.committed[id] {
			p.t.Errorf("event %s arrived and was never committed", id)
		}
		if !seen[id] && r.Key != nil {
			inOrder[string(r.Key)] = append(inOrder[string(r.Key)], id)
		}
		seen[id] = true
	}
	for key, want := range p.keys {
		if !slices.Equal(inOrder[key], want) {
			p.t.Errorf("%s: %d events arrived, want %d in the order of their commits", key, len(inOrder[key]), len(want))
		}
	}
	if len(seen) != len(p.committed) {
		p.t.Errorf("%d events arrived, want %d", len(seen), len(p.committed))
	}
	p.t.Logf("%d events, %d records", len(seen), len(records))
}

func wantKafkaMetrics(t *testing.T, address string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`kafka_producer_send_latency_ms_count{destination="events"} `, `kafka_producer_error_total{destination="events"} `,
		`kafka_producer_records_total{destination="events"} `, `kafka_producer_compression_ratio_count{destination="events"} `,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("/metrics does not show %s", want)
		}
	}
}

// One payload that breaks its contract, one unknown topic and one record of 2 MB among many good events: three are
// quarantined, each with its code, and all others are published.
func TestKafkaQuarantine(t *testing.T) {
	cluster := kafkatest.Shared(t)
	topic := cluster.Topic(t, 3)
	r := &rig{t: t, url: pgtest.Database(t), receiver: newReceiver(t)}
	db, err := sql.Open("pgx", r.url)
	r.open(db, err, outbox.Postgres)
	schema := writeFile(t, "case.v1.json", `{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","required":["id"]}`)
	file := writeFile(t, "kafka.yaml", fmt.Sprintf(`
database: {url: %q}
log: {format: json, attempts: false}
contracts: {dir: %q}
destinations:
  events: {kafka: {brokers: [%q]}}
`, r.url, strings.TrimSuffix(schema, "/case.v1.json"), cluster.Seeds()[0]))
	const good = 5000
	for from := 0; from < good; from += 1000 {
		events := make([]outbox.Event, 1000)
		for i := range events {
			events[i] = outbox.Event{Topic: topic, Key: fmt.Sprint("k", (from+i)%97), Type: "T", SchemaRef: "case.v1", Payload: []byte(`{"id":1}`)}
		}
		if from == 2000 {
			bad := outbox.Event{Topic: topic, Key: "k1", Type: "T", SchemaRef: "case.v1", Payload: []byte(`{}`)}
			lost := outbox.Event{Topic: "nobody-made-me", Key: "k2", Type: "T", SchemaRef: "case.v1", Payload: []byte(`{"id":2}`)}
			events = slices.Insert(events, 500, bad, lost)
			// Enqueue would refuse it; others than our library write to the table too.
			if _, err := db.ExecContext(t.Context(), `insert into outbox_event (topic_name, partition_key, event_type, schema_ref, payload)
				values ($1, 'k3', 'T', 'case.v1', json_build_object('id', repeat('x', 2 << 20)))`, topic); err != nil {
				t.Fatal(err)
			}
		}
		r.enqueue(true, events...)
	}
	relay := start(t, "run", "-c", file)
	within(t, 60*time.Second, "all good events", func() bool { return published(r) == good })
	const query = "select coalesce(string_agg(last_error_code, ' ' order by last_error_code), '') from outbox_status where status = 'QUARANTINED'"
	var codes string
	within(t, 30*time.Second, "three in quarantine", func() bool {
		if err := db.QueryRowContext(t.Context(), query).Scan(&codes); err != nil {
			t.Fatal(err)
		}
		return strings.Count(codes, " ") == 2
	})
	if want := "RECORD_TOO_LARGE SCHEMA_INVALID UNKNOWN_TOPIC"; codes != want {
		t.Errorf("in quarantine: %s, want %s", codes, want)
	}
	if code := relay.stop(); code != 0 {
		t.Errorf("the relay ended with %d, want 0", code)
	}
	if got := len(cluster.Records(t, topic, good)); got != good {
		t.Errorf("%d records, want %d", got, good)
	}
}
