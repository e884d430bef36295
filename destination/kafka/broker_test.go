package kafka

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/internal/kafkatest"
	"github.com/pillarbox-dev/pillarbox/relay"
)

// What the console consumer that comes with Kafka prints is what was enqueued.
func TestJavaConsumerSeesEverything(t *testing.T) {
	cluster := kafkatest.Shared(t)
	topic := cluster.Topic(t, 1)
	at := time.Date(2026, 3, 4, 5, 6, 7, 890_999_000, time.UTC)
	batch := []relay.Delivery{
		delivery(relay.Event{ID: "id-1", Topic: topic, Key: "CASE-1", Type: "CaseAccepted", Version: 3, SchemaRef: "case.v3", CreatedAt: at,
			Payload: []byte(`{ "n": 12345678901234567890.10, "b":1 }`), Headers: []byte(`{"correlationId":"c-1","x":"grün"}`)}),
		delivery(relay.Event{ID: "id-2", Topic: topic, Type: "NoKey", CreatedAt: at, Payload: []byte(`"text"`)}),
		delivery(relay.Event{ID: "id-3", Topic: topic, Key: "CASE-1", Type: "Gone", CreatedAt: at}),
	}
	d := newDestination(t, cluster.Seeds())
	outcomes := deliver(t, d, batch...)
	wantAll(t, outcomes, relay.Published, "")
	for i, o := range outcomes {
		if want := fmt.Sprint("0@", i); o.Receipt != want {
			t.Errorf("receipt %d is %q, want %q", i, o.Receipt, want)
		}
	}

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	args := []string{"--bootstrap-server", cluster.DirectSeeds()[0], "--topic", topic, "--from-beginning", "--max-messages", "3"}
	for _, property := range []string{"print.key=true", "print.headers=true", "print.timestamp=true", "null.literal=NULL"} {
		args = append(args, "--formatter-property", property)
	}
	cmd := cluster.Java(ctx, "org.apache.kafka.tools.consumer.ConsoleConsumer", args...)
	var errors bytes.Buffer
	cmd.Stderr = &errors
	printed, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, errors.String())
	}
	const when = "CreateTime:1772600767890\t"
	want := when + "eventId:id-1,eventType:CaseAccepted,eventVersion:3,schemaRef:case.v3,correlationId:c-1,x:grün\tCASE-1\t" +
		`{ "n": 12345678901234567890.10, "b":1 }` + "\n" +
		when + "eventId:id-2,eventType:NoKey,eventVersion:1\tNULL\t\"text\"\n" +
		when + "eventId:id-3,eventType:Gone,eventVersion:1\tCASE-1\tNULL\n"
	if string(printed) != want {
		t.Errorf("the consumer printed\n%s\nwant\n%s", printed, want)
	}
}

// The Java producer gives the same keys the same partitions.
func TestJavaProducerAgreesOnPartitions(t *testing.T) {
	cluster := kafkatest.Shared(t)
	theirs, ours := cluster.Topic(t, 7), cluster.Topic(t, 7)
	const keys = 60
	var lines strings.Builder
	var batch []relay.Delivery
	for i := range keys {
		key := strings.Repeat("ключ-", i%5) + fmt.Sprint(i*i)
		fmt.Fprintf(&lines, "%s\tx\n", key)
		batch = append(batch, delivery(relay.Event{Topic: ours, Key: key, Payload: []byte(`1`)}))
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := cluster.Java(ctx, "org.apache.kafka.tools.ConsoleProducer", "--bootstrap-server", cluster.DirectSeeds()[0], "--topic", theirs,
		"--reader-property", "parse.key=true")
	cmd.Env = append(cmd.Environ(), "JAVA_TOOL_OPTIONS=-Dfile.encoding=UTF-8 -Dstdin.encoding=UTF-8")
	cmd.Stdin = strings.NewReader(lines.String())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	wantAll(t, deliver(t, newDestination(t, cluster.Seeds()), batch...), relay.Published, "")
	partitions := func(topic string) map[string]int32 {
		found := map[string]int32{}
		for _, r := range cluster.Records(t, topic, keys) {
			found[string(r.Key)] = r.Partition
		}
		return found
	}
	want, got := partitions(theirs), partitions(ours)
	if len(want) != keys {
		t.Fatalf("the Java producer wrote %d keys, want %d", len(want), keys)
	}
	for key, partition := range want {
		if got[key] != partition {
			t.Errorf("key %q went to partition %d, the Java producer sends it to %d", key, got[key], partition)
		}
	}
}

// One that the topic refuses is found among many that share its record batch, and all others arrive in order.
func TestOneInvalidAmongMany(t *testing.T) {
	cluster := kafkatest.Shared(t)
	topic := cluster.TopicWith(t, 1, map[string]string{"cleanup.policy": "compact"}) // takes no record without a key
	const n, bad = 500, 237
	var batch []relay.Delivery
	var want []string
	for i := range n {
		e := relay.Event{ID: fmt.Sprintf("e-%03d", i), Topic: topic, Key: fmt.Sprint("key-", i/50), Payload: []byte(`{}`)}
		if i == bad {
			e.Key = ""
		} else {
			want = append(want, e.ID)
		}
		batch = append(batch, delivery(e))
	}
	for i, o := range deliver(t, newDestination(t, cluster.Seeds()), batch...) {
		if i == bad {
			wantOutcome(t, "the bad one", o, relay.Reject, CodeInvalidRecord)
		} else {
			wantOutcome(t, fmt.Sprint("event ", i), o, relay.Published, "")
		}
	}
	got := eventIDs(cluster.Records(t, topic, n-1))
	if !slices.Equal(got, want) {
		t.Errorf("%d records arrived, want %d, each once and in order\ngot %q", len(got), len(want), got)
	}
}

// What is wrong with one event, or with its topic, touches no other.
func TestRejectsAmongGoodOnes(t *testing.T) {
	cluster := kafkatest.Shared(t)
	topic := cluster.Topic(t, 3)
	good := func(i int) relay.Delivery {
		return delivery(relay.Event{Topic: topic, Key: fmt.Sprint("k", i), Payload: []byte(`{}`)})
	}
	big := make([]byte, 2<<20)
	_, _ = rand.Read(big)
	for _, test := range []struct {
		name  string
		event relay.Event
		code  string
		limit int
	}{
		{"unknown topic", relay.Event{Topic: "nobody-made-me", Key: "k1"}, CodeUnknownTopic, 0},
		{"a name that no topic has", relay.Event{Topic: "no topic", Key: "k1"}, CodeInvalidTopic, 0},
		{"too large by our own limit", relay.Event{Topic: topic, Key: "k1", Payload: big, Binary: true}, CodeTooLarge, 0},
		{"too large for the broker", relay.Event{Topic: topic, Key: "k1", Payload: big, Binary: true}, CodeTooLarge, 8 << 20},
		{"headers", relay.Event{Topic: topic, Key: "k1", Headers: []byte(`[]`)}, CodeHeaders, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := newDestination(t, cluster.Seeds(), func(c *Config) { c.MaxRecordSize = test.limit })
			batch := []relay.Delivery{good(0), good(1), delivery(test.event), good(1), good(2)}
			slices.SortStableFunc(batch, func(a, b relay.Delivery) int { return strings.Compare(a.Key, b.Key) })
			outcomes := deliver(t, d, batch...)
			for i, o := range outcomes {
				if i == 2 {
					wantOutcome(t, "the bad one", o, relay.Reject, test.code)
					if o.Message == "" || len(o.Message) > 700 {
						t.Errorf("message of %d bytes: %s", len(o.Message), o.Message)
					}
				} else {
					wantOutcome(t, fmt.Sprint("event ", i), o, relay.Published, "")
				}
			}
		})
	}
}

// A topic that was made a moment ago is used, and one that is made after a reject too.
func TestTopicIsMadeLater(t *testing.T) {
	cluster := kafkatest.Shared(t)
	d := newDestination(t, cluster.Seeds())
	event := relay.Event{Topic: "made-later", Key: "k", Payload: []byte(`1`)}
	wantAll(t, deliver(t, d, delivery(event), delivery(event)), relay.Reject, CodeUnknownTopic)
	if err := cluster.CreateTopic(t.Context(), "made-later", 1, nil); err != nil {
		t.Fatal(err)
	}
	time.Sleep(absentAge)
	wantAll(t, deliver(t, d, delivery(event), delivery(event)), relay.Published, "")
}

// Records without a key are spread, and a topic of one name in the log can be another in Kafka.
func TestNoKey(t *testing.T) {
	cluster := kafkatest.Shared(t)
	topic := cluster.Topic(t, 4)
	d := newDestination(t, cluster.Seeds(), func(c *Config) { c.Topics = map[string]string{"log": topic} })
	for range 8 {
		wantAll(t, deliver(t, d, delivery(relay.Event{Topic: "log", Payload: []byte(`1`)})), relay.Published, "")
	}
	used := map[int32]int{}
	for _, r := range cluster.Records(t, topic, 8) {
		used[r.Partition]++
		if r.Key != nil {
			t.Errorf("key %q, want none", r.Key)
		}
	}
	if len(used) != 4 {
		t.Errorf("the partitions hold %v, want all four used", used)
	}
}

// A lane keeps its order over topics: what stands behind waits for what stands in front.
func TestLaneOverSeveralTopics(t *testing.T) {
	cluster := kafkatest.Shared(t)
	a, b := cluster.Topic(t, 1), cluster.Topic(t, 1)
	d := newDestination(t, cluster.Seeds())
	var batch []relay.Delivery
	for i := range 20 {
		batch = append(batch, delivery(relay.Event{Topic: []string{a, b}[i%2], Key: "k", Payload: []byte(`1`)}))
	}
	wantAll(t, deliver(t, d, batch...), relay.Published, "")
	for n, topic := range []string{a, b} {
		for i, r := range cluster.Records(t, topic, 10) {
			if id := eventID(r); id != batch[2*i+n].ID {
				t.Errorf("%s: record %d is %s, want %s", topic, i, id, batch[2*i+n].ID)
			}
		}
	}
}

// A broker that stops and comes back under load: nothing is lost, and each key stays in order.
func TestBrokerRestartUnderLoad(t *testing.T) {
	cluster := kafkatest.New(t, kafkatest.Options{})
	topic := cluster.Topic(t, 3)
	d := newDestination(t, cluster.Seeds())
	stop, done := make(chan struct{}), make(chan int)
	go func() { done <- deliverUntil(t, d, topic, stop) }()
	time.Sleep(500 * time.Millisecond)
	for _, down := range []func() error{cluster.Brokers[0].Stop, cluster.Brokers[0].Kill} {
		if err := down(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if err := cluster.Brokers[0].Up(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
	}
	close(stop)
	checkRuns(t, cluster, topic, <-done)
}

// The leader of a partition dies; the two others carry on, and nothing that was acknowledged is lost.
func TestLeaderIsKilled(t *testing.T) {
	cluster := kafkatest.New(t, kafkatest.Options{Brokers: 3, Heap: "256m", Settings: map[string]string{"min.insync.replicas": "2"}})
	topic := cluster.Topic(t, 3)
	d := newDestination(t, cluster.Seeds())
	stop, done := make(chan struct{}), make(chan int)
	go func() { done <- deliverUntil(t, d, topic, stop) }()
	time.Sleep(500 * time.Millisecond)
	leader, err := cluster.Leader(t.Context(), topic, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := leader.Kill(); err != nil {
		t.Fatal(err)
	}
	for began := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		if next, err := cluster.Leader(t.Context(), topic, 0); err == nil && next != leader {
			break
		}
		if time.Since(began) > time.Minute {
			t.Fatal("nobody took the partition over")
		}
	}
	time.Sleep(time.Second)
	close(stop)
	checkRuns(t, cluster, topic, <-done)
}

const runKeys = 6

// deliverUntil delivers runs of events for each key, as a relay does: what is not published is delivered again, before
// what follows. It returns how many there were of each key.
func deliverUntil(t *testing.T, d *Destination, topic string, stop chan struct{}) (n int) {
	for ; ; n += 5 {
		var pending []relay.Delivery
		for k := range runKeys {
			for i := range 5 {
				pending = append(pending, delivery(relay.Event{
					ID: fmt.Sprintf("k%d-%06d", k, n+i), Topic: topic, Key: fmt.Sprint("k", k), Payload: []byte(`1`),
				}))
			}
		}
		for began := time.Now(); len(pending) > 0; {
			var again []relay.Delivery
			for i, o := range deliver(t, d, pending...) {
				if o.Kind == relay.Reject {
					t.Errorf("%s was rejected: %s %s", pending[i].ID, o.Code, o.Message)
				} else if o.Kind != relay.Published {
					again = append(again, pending[i])
				}
			}
			if pending = again; time.Since(began) > time.Minute {
				t.Errorf("%d events are not through after a minute", len(pending))
				return n
			}
			if len(pending) > 0 {
				time.Sleep(100 * time.Millisecond)
			}
		}
		select {
		case <-stop:
			return n + 5
		default:
		}
	}
}

// checkRuns checks that all arrived, for the first time in order.
func checkRuns(t *testing.T, cluster *kafkatest.Cluster, topic string, n int) {
	t.Helper()
	seen, last := map[string]bool{}, map[string]string{}
	total := 0
	for _, r := range readUntil(t, cluster, topic, n*runKeys) {
		total++
		if seen[r] {
			continue
		}
		seen[r] = true
		key := r[:2]
		if r < last[key] {
			t.Errorf("%s arrived after %s", r, last[key])
		}
		last[key] = r
	}
	for k := range runKeys {
		for i := range n {
			if id := fmt.Sprintf("k%d-%06d", k, i); !seen[id] {
				t.Errorf("%s was acknowledged and is not there", id)
			}
		}
	}
	t.Logf("%d events, %d of them twice", len(seen), total-len(seen))
}

// readUntil reads the ids of the topic until so many different ones are there, or nothing more comes.
func readUntil(t *testing.T, cluster *kafkatest.Cluster, topic string, different int) (ids []string) {
	t.Helper()
	for n := different; ; n++ {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		records, err := cluster.ReadAll(ctx, topic, n)
		cancel()
		ids = eventIDs(records)
		distinct := map[string]bool{}
		for _, id := range ids {
			distinct[id] = true
		}
		if err != nil || len(distinct) >= different {
			return ids
		}
		n = max(n, len(ids))
	}
}
