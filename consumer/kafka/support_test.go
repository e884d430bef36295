package kafka

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pillarbox-dev/pillarbox/internal/kafkatest"
	"github.com/pillarbox-dev/pillarbox/internal/pgtest"
	"github.com/pillarbox-dev/pillarbox/outbox"
	"github.com/pillarbox-dev/pillarbox/outbox/inbox"
	"github.com/pillarbox-dev/pillarbox/outbox/schema"
)

// patience is how long a test waits for what must come.
const patience = 3 * time.Minute

// handledTable has no unique key: what is handled twice stands there twice.
const handledTable = `create table handled (
  seq bigserial primary key, event_id text not null, topic text not null, part integer not null, pos bigint not null,
  aggregate text not null default '', version bigint not null default 0, verdict text not null default '')`

// world is a broker, a database and a topic with its dead-letter topic.
type world struct {
	t       testing.TB
	cluster *kafkatest.Cluster
	url     string
	db      *sql.DB
	box     *inbox.Inbox
	topic   string
	group   string
}

func newWorld(t testing.TB, partitions int32) *world {
	return newWorldOn(t, kafkatest.Shared(t), pgtest.Shared(t), partitions)
}

func newWorldOn(t testing.TB, cluster *kafkatest.Cluster, server *pgtest.Server, partitions int32) *world {
	t.Helper()
	w := &world{t: t, cluster: cluster, url: server.Database(t)}
	w.topic = cluster.Topic(t, partitions)
	w.group = w.topic
	must(t, cluster.CreateTopic(t.Context(), w.topic+".dead-letter", 1, nil))
	w.db = openDatabase(t, w.url)
	_, err := schema.Migrate(t.Context(), w.db, outbox.Postgres, "public")
	must(t, err)
	w.exec(handledTable)
	w.box, err = inbox.New(outbox.Postgres, inbox.Options{Wait: 200 * time.Millisecond})
	must(t, err)
	return w
}

func openDatabase(t testing.TB, url string) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", url)
	must(t, err)
	db.SetMaxIdleConns(16)
	t.Cleanup(func() { must(t, db.Close()) })
	return db
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (w *world) exec(query string, args ...any) {
	w.t.Helper()
	_, err := w.db.ExecContext(w.t.Context(), query, args...)
	must(w.t, err)
}

// list returns the first column.
func (w *world) list(query string, args ...any) (all []string) {
	w.t.Helper()
	rows, err := w.db.QueryContext(w.t.Context(), query, args...)
	must(w.t, err)
	defer rows.Close()
	for rows.Next() {
		var text string
		must(w.t, rows.Scan(&text))
		all = append(all, text)
	}
	must(w.t, rows.Err())
	return all
}

func (w *world) number(query string) (n int) {
	w.t.Helper()
	must(w.t, w.db.QueryRowContext(w.t.Context(), query).Scan(&n))
	return n
}

// record makes the record of an event. Its body is its id.
func (w *world) record(partition int32, id string) *kgo.Record {
	return &kgo.Record{Topic: w.topic, Partition: partition, Key: []byte("k"), Value: []byte(`"` + id + `"`),
		Headers: []kgo.RecordHeader{{Key: "eventId", Value: []byte(id)}, {Key: "eventType", Value: []byte("Tested")}}}
}

// send writes events, in this order.
func (w *world) send(partition int32, ids ...string) {
	w.t.Helper()
	records := make([]*kgo.Record, len(ids))
	for i, id := range ids {
		records[i] = w.record(partition, id)
	}
	w.produce(records...)
}

func (w *world) produce(records ...*kgo.Record) {
	w.t.Helper()
	client, err := w.cluster.Client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	must(w.t, err)
	defer client.Close()
	must(w.t, client.ProduceSync(w.t.Context(), records...).FirstErr())
}

// handle writes that a message was handled.
func handle(ctx context.Context, tx *sql.Tx, m Message) error {
	_, err := tx.ExecContext(ctx, "insert into handled (event_id, topic, part, pos) values ($1, $2, $3, $4)",
		m.EventID, m.Topic, m.Partition, m.Offset)
	return err
}

func (w *world) config() Config[*sql.Tx] {
	return Config[*sql.Tx]{
		Brokers: w.cluster.DirectSeeds(), Topics: []string{w.topic}, Group: w.group, Inbox: w.box,
		Begin: outbox.BeginSQL(w.db, nil), Handle: handle, Log: slog.New(slog.NewTextHandler(testWriter{w.t}, nil)),
		RetryMin: 10 * time.Millisecond, CommitInterval: 100 * time.Millisecond, SessionTimeout: 6 * time.Second,
		Client: []kgo.Opt{kgo.MetadataMinAge(100 * time.Millisecond)},
	}
}

// testWriter shows logs with the test's output.
type testWriter struct{ t testing.TB }

func (w testWriter) Write(line []byte) (int, error) {
	if w.t.Context().Err() == nil {
		w.t.Logf("%s", line[:len(line)-1])
	}
	return len(line), nil
}

// running is a consumer at work.
type running struct {
	*Consumer[*sql.Tx]
	t      testing.TB
	cancel context.CancelFunc
	done   chan error
	once   sync.Once
	err    error
}

// start runs a consumer until the end of the test, or stop.
func (w *world) start(change func(c *Config[*sql.Tx])) *running {
	w.t.Helper()
	c := w.config()
	if change != nil {
		change(&c)
	}
	consumer, err := New(c)
	must(w.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{Consumer: consumer, t: w.t, cancel: cancel, done: make(chan error, 1)}
	go func() { r.done <- consumer.Run(ctx) }()
	w.t.Cleanup(func() { _ = r.end() })
	return r
}

func (r *running) end() error {
	r.once.Do(func() {
		r.cancel()
		select {
		case r.err = <-r.done:
		case <-time.After(patience):
			r.err = fmt.Errorf("Run did not return within %v of its context's end", patience)
		}
	})
	return r.err
}

func (r *running) stop() {
	r.t.Helper()
	must(r.t, r.end())
}

// eventually waits until ok returns true.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

func (w *world) awaitHandled(n int) {
	w.t.Helper()
	eventually(w.t, fmt.Sprintf("%d handled", n), func() bool { return w.number("select count(*) from handled") >= n })
}

// wantHandled compares what was handled, in its order, and what the inbox holds.
func (w *world) wantHandled(want ...string) {
	w.t.Helper()
	if got := w.list("select event_id from handled order by seq"); !slices.Equal(got, want) {
		w.t.Errorf("handled %q, want %q", got, want)
	}
	got := w.list("select event_id from outbox_inbox order by 1")
	slices.Sort(want)
	if !slices.Equal(got, want) {
		w.t.Errorf("the inbox holds %q, want %q", got, want)
	}
}

// committed returns the group's offset of partition 0; -1 when there is none.
func (w *world) committed() int64 {
	w.t.Helper()
	client, err := w.cluster.Client()
	must(w.t, err)
	defer client.Close()
	offsets, err := kadm.NewClient(client).FetchOffsets(w.t.Context(), w.group)
	must(w.t, err)
	if o, ok := offsets.Lookup(w.topic, 0); ok {
		return o.At
	}
	return -1
}

func headers(r *kgo.Record) map[string]string {
	all := map[string]string{}
	for _, h := range r.Headers {
		all[h.Key] = string(h.Value)
	}
	return all
}

// ids returns n event ids.
func ids(prefix string, n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("%s%03d", prefix, i))
	}
	return all
}
