package crashtest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/pillarbox-dev/pillarbox/contract"
	"github.com/pillarbox-dev/pillarbox/destination/kafka"
	"github.com/pillarbox-dev/pillarbox/internal/kafkatest"
	"github.com/pillarbox-dev/pillarbox/outbox"
	"github.com/pillarbox-dev/pillarbox/relay"
)

// How much is written where much is the point, in how many transactions, with how many keys.
const (
	volume     = 100_000
	volumeTxs  = 200
	volumeKeys = 500
)

// many commits a part of the volume, with a business row for each event. The ids of a key are in order.
func (b *bench) many(box *outbox.Outbox, topic string, part int) {
	b.Helper()
	events := make([]outbox.Event, volume/volumeTxs)
	ids := make([]string, len(events))
	for i := range events {
		n := part*len(events) + i
		ids[i] = fmt.Sprintf("key%03d-%06d", n%volumeKeys, n)
		events[i] = placed(ids[i], topic, `{"n":1}`)
	}
	tx, err := b.db.BeginTx(b.Context(), nil)
	if err != nil {
		b.Fatal(err)
	}
	defer tx.Rollback() // after a commit it does nothing
	if _, err := tx.ExecContext(b.Context(), "insert into business (id) select unnest($1::text[])", ids); err != nil {
		b.Fatal(err)
	}
	if _, err := box.Enqueue(b.Context(), tx, events...); err != nil {
		b.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		b.Fatal(err)
	}
}

// placed is an event whose id begins with its key.
func placed(id, topic, payload string) outbox.Event {
	key, _, _ := strings.Cut(id, "-")
	return outbox.Event{ID: id, Topic: topic, Key: key, Type: "OrderPlaced", SchemaRef: "order.v1", Payload: []byte(payload)}
}

// deliveries counts rows of the ledger.
func (b *bench) deliveries(condition string) (n int) {
	b.Helper()
	query := "select count(*) from outbox_delivery where " + condition
	if err := b.db.QueryRowContext(b.Context(), query).Scan(&n); err != nil {
		b.Fatalf("%s: %v", query, err)
	}
	return n
}

// The broker is down for a minute, and meanwhile 100,000 events are committed. Nothing is written down for it and no attempt is
// charged; afterwards all of them arrive, each key in its order, and none is quarantined.
func TestBrokerDownForAMinute(t *testing.T) {
	cluster := kafkatest.New(t, kafkatest.Options{})
	b := newBench(t, "postgres", "")
	b.collect(cluster)
	b.repeats = true // an answer may be lost while the broker comes up
	box, err := outbox.New(outbox.Postgres, outbox.Options{})
	if err != nil {
		t.Fatal(err)
	}
	relay := b.relay(processArgs{Batch: 2000})
	b.many(box, b.topic, 0)
	b.drained()
	const first = volume / volumeTxs
	eventually(t, "the first ones are settled", func() bool { return b.deliveries("true") == first })

	if err := cluster.Brokers[0].Kill(); err != nil {
		t.Fatal(err)
	}
	down := time.Now()
	for part := 1; part < volumeTxs; part++ {
		b.many(box, b.topic, part)
		time.Sleep(time.Until(down.Add(time.Minute * time.Duration(part) / volumeTxs)))
	}
	if relay.said("notice breaker_open") == 0 {
		t.Error("the relay did not notice that the broker is down")
	}
	if got := b.deliveries("true"); got != first {
		t.Errorf("the outage made %d rows in the ledger out of %d", got, first)
	}
	if err := cluster.Brokers[0].Up(); err != nil {
		t.Fatal(err)
	}
	b.drained()
	relay.stop()
	b.verdict()
	if n := b.deliveries("attempt_count <> 1"); n > 0 {
		t.Errorf("the outage was charged to %d deliveries", n)
	}
}

// Among 100,000 good events are one that breaks its contract, one for a topic that nobody has made, and one that no broker takes.
// Exactly these are quarantined, each with its code. All others are published, those of the same keys too.
func TestThreeBadAmongManyGood(t *testing.T) {
	b := newBench(t, "postgres", "")
	b.collect(kafkatest.Shared(t))
	box, err := outbox.New(outbox.Postgres, outbox.Options{MaxPayloadBytes: 4 << 20})
	if err != nil {
		t.Fatal(err)
	}
	for part := range volumeTxs {
		b.many(box, b.topic, part)
		if part == volumeTxs/2 {
			b.bad(box)
		}
	}
	stop := b.relayHere()
	const quarantined = "select concat_ws(' ', event_id, last_error_code) from outbox_status where status = 'QUARANTINED' order by 1"
	b.drained()
	eventually(t, "all is settled", func() bool { return b.deliveries("true") == volume+3 })
	stop()
	want := []string{"key000-invalid SCHEMA_INVALID", "key001-unknown UNKNOWN_TOPIC", "key002-large RECORD_TOO_LARGE"}
	if got := b.texts(quarantined); !slices.Equal(got, want) {
		t.Errorf("in quarantine: %q, want %q", got, want)
	}
	arrivals := b.receiver.all()
	b.nothingFalse(b.committed(), arrivals)
	b.inOrder(arrivals)
	if len(arrivals) != volume {
		t.Errorf("%d records have arrived, want %d", len(arrivals), volume)
	}
	if n := b.deliveries("status = 'PUBLISHED' and attempt_count = 1"); n != volume {
		t.Errorf("%d events were published at the first attempt, want %d", n, volume)
	}
}

// bad writes the three.
func (b *bench) bad(box *outbox.Outbox) {
	b.Helper()
	tx, err := b.db.BeginTx(b.Context(), nil)
	if err != nil {
		b.Fatal(err)
	}
	defer tx.Rollback() // after a commit it does nothing
	if _, err := box.Enqueue(b.Context(), tx,
		placed("key000-invalid", b.topic, `{"n":"one"}`),
		placed("key001-unknown", "nobody-made-me", `{"n":1}`),
		placed("key002-large", b.topic, `{"n":1,"text":"`+strings.Repeat("x", 2<<20)+`"}`),
	); err != nil {
		b.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		b.Fatal(err)
	}
}

// relayHere runs a relay in this process that holds events to a contract, until what it returns is called.
func (b *bench) relayHere() (stop func()) {
	b.Helper()
	contracts, err := contract.Load(contract.Config{FS: fstest.MapFS{
		"order.v1.json": {Data: []byte(`{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}`)},
	}})
	if err != nil {
		b.Fatal(err)
	}
	destination, err := kafka.New(kafka.Config{Brokers: b.brokers})
	if err != nil {
		b.Fatal(err)
	}
	store, err := b.openStore(b.Context(), b.database)
	if err != nil {
		b.Fatal(err)
	}
	r, err := relay.New(relay.Config{
		Store: store, Owner: "here", Lease: longLease,
		Destinations: []relay.DestinationConfig{{
			Name: "inbox", Destination: destination, Contract: contracts.Judge, Timeout: longLease / 2,
		}},
	})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			b.Error(err)
		}
		destination.Close()
		store.(interface{ Close() }).Close()
	})
	b.Cleanup(stop)
	return stop
}
