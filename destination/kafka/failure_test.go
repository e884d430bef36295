package kafka

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pillarbox-dev/pillarbox/relay"
)

func TestOutcomeOf(t *testing.T) {
	dial := &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	for _, test := range []struct {
		err              error
		kind             relay.Kind
		code             string
		pause, uncertain bool
	}{
		{err: kerr.UnknownTopicOrPartition, kind: relay.Reject, code: "UNKNOWN_TOPIC"},
		{err: kerr.InvalidTopicException, kind: relay.Reject, code: "INVALID_TOPIC"},
		{err: kerr.MessageTooLarge, kind: relay.Reject, code: "RECORD_TOO_LARGE"},
		{err: fmt.Errorf("%w (uncompressed_bytes=7)", kerr.MessageTooLarge), kind: relay.Reject, code: "RECORD_TOO_LARGE"},
		{err: kerr.RecordListTooLarge, kind: relay.Reject, code: "RECORD_TOO_LARGE"},
		{err: kerr.InvalidRecord, kind: relay.Reject, code: "INVALID_RECORD"},
		{err: kerr.InvalidTimestamp, kind: relay.Reject, code: "INVALID_RECORD"},
		{err: kerr.TopicAuthorizationFailed, kind: relay.Reject, code: "TOPIC_NOT_ALLOWED"},
		{err: kerr.NotEnoughReplicas, kind: relay.Unavailable, code: "NOT_ENOUGH_REPLICAS"},
		{err: kerr.NotEnoughReplicasAfterAppend, kind: relay.Unavailable, code: "NOT_ENOUGH_REPLICAS", uncertain: true},
		{err: kerr.LeaderNotAvailable, kind: relay.Unavailable, code: "NO_LEADER"},
		{err: kerr.NotLeaderForPartition, kind: relay.Unavailable, code: "NO_LEADER"},
		{err: kerr.RequestTimedOut, kind: relay.Unavailable, code: "TIMEOUT", uncertain: true},
		{err: kerr.KafkaStorageError, kind: relay.Unavailable, code: "BROKER_ERROR"},
		{err: kerr.OutOfOrderSequenceNumber, kind: relay.Unavailable, code: "PRODUCER_STATE"},
		{err: kerr.ProducerFenced, kind: relay.Unavailable, code: "PRODUCER_STATE"},
		{err: kerr.SaslAuthenticationFailed, kind: relay.Unavailable, code: "NOT_AUTHENTICATED", pause: true},
		{err: kerr.ClusterAuthorizationFailed, kind: relay.Unavailable, code: "NOT_AUTHORIZED", pause: true},
		{err: kerr.UnsupportedCompressionType, kind: relay.Unavailable, code: "UNSUPPORTED", pause: true},
		{err: kerr.UnknownServerError, kind: relay.Retry, code: "KAFKA_UNKNOWN_SERVER_ERROR"},
		{err: kerr.RebalanceInProgress, kind: relay.Retry, code: "KAFKA_REBALANCE_IN_PROGRESS"},
		{err: dial, kind: relay.Unavailable, code: "DIAL_FAILED"},
		{err: fmt.Errorf("unable to dial: %w", dial), kind: relay.Unavailable, code: "DIAL_FAILED"},
		{err: &net.DNSError{Err: "no such host", Name: "kafka"}, kind: relay.Unavailable, code: "DIAL_FAILED"},
		{err: io.EOF, kind: relay.Unavailable, code: "CONNECTION_LOST"},
		{err: kgo.ErrClientClosed, kind: relay.Unavailable, code: "CONNECTION_LOST"},
		{err: nil, kind: relay.Unavailable, code: "CONNECTION_LOST"},
		{err: context.DeadlineExceeded, kind: relay.Unavailable, code: "TIMEOUT"},
		{err: x509.UnknownAuthorityError{}, kind: relay.Unavailable, code: "TLS_FAILED", pause: true},
		{err: &credentialError{"sasl.password_file is empty"}, kind: relay.Unavailable, code: "CONFIGURATION", pause: true},
	} {
		got := outcomeOf(test.err)
		if got.Kind != test.kind || got.Code != test.code || got.Pause != test.pause || got.Uncertain != test.uncertain {
			t.Errorf("%v: got %v %s, pause %v, uncertain %v", test.err, got.Kind, got.Code, got.Pause, got.Uncertain)
		}
		if got.Message == "" || got.Code != strings.ToUpper(got.Code) {
			t.Errorf("%v: code %q, message %q", test.err, got.Code, got.Message)
		}
	}
}

// fake starts a broker that can be told to fail.
func fake(t *testing.T, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1), kfake.SeedTopics(3, "t")}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// keyIn finds a key that goes to a partition.
func keyIn(partition int32, n int) string {
	for i := 0; ; i++ {
		if key := fmt.Sprint("key-", n, "-", i); partitionOf([]byte(key), 3) == partition {
			return key
		}
	}
}

// everything returns the ids in the topic, by key and in order. It waits for n of them, for long if other tests
// have the processors.
func everything(t *testing.T, c *kfake.Cluster, n int) map[string][]string {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.ConsumeTopics("t"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	found := map[string][]string{}
	for got := 0; got < n && ctx.Err() == nil; {
		for _, r := range client.PollFetches(ctx).Records() {
			found[string(r.Key)] = append(found[string(r.Key)], eventID(r))
			got++
		}
	}
	return found
}

// One partition fails in the midst of a call of several waves. What was sent stays, what stands behind it in its lanes is not
// sent, the other partitions go on, and after all was delivered again everything is there once and in order.
func TestPartitionFailsInTheMidstOfACall(t *testing.T) {
	for _, fault := range []*kerr.Error{
		kerr.NotEnoughReplicas, kerr.NotLeaderForPartition, kerr.UnknownServerError, kerr.KafkaStorageError,
	} {
		t.Run(fault.Message, func(t *testing.T) {
			t.Parallel()
			c := fake(t)
			d := newDestination(t, c.ListenAddrs(), func(c *Config) { c.BatchSize = 2000 })
			const each = 20
			var batch []relay.Delivery
			for lane := range 6 {
				for i := range each {
					batch = append(batch, delivery(relay.Event{
						ID: fmt.Sprintf("%d-%02d", lane, i), Topic: "t", Key: keyIn(int32(lane%3), lane), Payload: []byte(`"0123456789"`),
					}))
				}
			}
			requests := 0
			handle := c.Fault(kfake.Fault{
				Keys: []kmsg.Key{kmsg.Produce}, Topic: "t", Partitions: []int32{1}, Err: fault, Count: -1,
				When: func(kmsg.Request) bool { requests++; return requests > 3 },
			})
			published := 0
			var again []relay.Delivery
			for i, o := range deliver(t, d, batch...) {
				switch {
				case o.Kind == relay.Published:
					published++
					if len(again) > 0 && again[len(again)-1].Key == batch[i].Key {
						t.Errorf("%s was published although %s in front of it was not", batch[i].ID, again[len(again)-1].ID)
					}
				case o.Kind == relay.Reject:
					t.Errorf("%s was rejected: %s", batch[i].ID, o.Code)
				case partitionOf([]byte(batch[i].Key), 3) != 1:
					t.Errorf("%s of another partition: %v %s", batch[i].ID, o.Kind, o.Code)
				default:
					again = append(again, batch[i])
					if want := outcomeOf(fault); o.Kind != relay.Released && (o.Kind != want.Kind || o.Code != want.Code) {
						t.Errorf("%s: got %v %s (%s), want %v %s", batch[i].ID, o.Kind, o.Code, o.Message, want.Kind, want.Code)
					}
				}
			}
			if len(again) == 0 || len(again) == 2*each {
				t.Fatalf("%d of the partition's %d are left: it did not fail in the midst", len(again), 2*each)
			}
			arrived := everything(t, c, published)
			n := 0
			for _, ids := range arrived {
				n += len(ids)
			}
			if n != published {
				t.Errorf("%d events arrived, %d were published", n, published)
			}
			handle.Remove()
			wantAll(t, deliver(t, d, again...), relay.Published, "")
			for key, ids := range everything(t, c, len(batch)) {
				if len(ids) != each {
					t.Errorf("%s has %d events, want %d", key, len(ids), each)
				}
				for i, id := range ids {
					if !strings.HasSuffix(id, fmt.Sprintf("-%02d", i)) {
						t.Errorf("%s holds %q, want them in order", key, ids)
						break
					}
				}
			}
		})
	}
}

// What stands behind a failure in its lane is not sent, wherever it would go.
func TestLaneStopsOverSeveralTopics(t *testing.T) {
	c := fake(t, kfake.SeedTopics(3, "t", "u"))
	d := newDestination(t, c.ListenAddrs())
	handle := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "u", Err: kerr.UnknownServerError, Count: -1})
	on := func(topic, key string) relay.Delivery {
		return delivery(relay.Event{Topic: topic, Key: key, Payload: []byte(`1`)})
	}
	batch := []relay.Delivery{on("t", "k"), on("u", "k"), on("t", "k"), on("u", "k"), on("t", "other"), on("t", "")}
	for i, o := range deliver(t, d, batch...) {
		want := []relay.Kind{relay.Published, relay.Retry, relay.Released, relay.Released, relay.Published, relay.Published}[i]
		if o.Kind != want {
			t.Errorf("event %d: got %v %s, want %v", i, o.Kind, o.Code, want)
		}
	}
	if got := everything(t, c, 3)["k"]; len(got) != 1 {
		t.Errorf("%d events of the lane arrived, want the one in front of the failure", len(got))
	}
	handle.Remove()
	wantAll(t, deliver(t, d, batch[1:4]...), relay.Published, "")
}

// A producer that is fenced is replaced.
func TestFencedProducerIsReplaced(t *testing.T) {
	c := fake(t)
	d := newDestination(t, c.ListenAddrs())
	event := relay.Event{Topic: "t", Key: "k", Payload: []byte(`1`)}
	wantAll(t, deliver(t, d, delivery(event)), relay.Published, "")
	first := d.pool.idle[0]
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "t", Err: kerr.ProducerFenced})
	wantAll(t, deliver(t, d, delivery(event)), relay.Unavailable, CodeProducer)
	wantAll(t, deliver(t, d, delivery(event)), relay.Published, "")
	if len(d.pool.idle) != 1 || d.pool.idle[0] == first {
		t.Error("the producer that was fenced is still in use")
	}
}

// What the cluster forbids is one topic's matter or the whole destination's.
func TestNotAllowed(t *testing.T) {
	event := relay.Event{Topic: "t", Key: "k", Payload: []byte(`1`)}
	for _, test := range []struct {
		key  kmsg.Key
		err  *kerr.Error
		kind relay.Kind
		code string
	}{
		{kmsg.Metadata, kerr.TopicAuthorizationFailed, relay.Reject, CodeTopicDenied},
		{kmsg.Produce, kerr.TopicAuthorizationFailed, relay.Reject, CodeTopicDenied},
		{kmsg.Produce, kerr.ClusterAuthorizationFailed, relay.Unavailable, CodeDenied},
	} {
		c := fake(t)
		handle := c.Fault(kfake.Fault{Keys: []kmsg.Key{test.key}, Topic: "t", Err: test.err, Count: -1})
		d := newDestination(t, c.ListenAddrs())
		wantAll(t, deliver(t, d, delivery(event), delivery(event)), test.kind, test.code)
		handle.Remove()
		time.Sleep(absentAge)
		wantAll(t, deliver(t, d, delivery(event)), relay.Published, "")
	}
}

// A topic that goes away while it is in use is looked up again, and rejected when it stays away.
func TestTopicGoesAway(t *testing.T) {
	c := fake(t)
	d := newDestination(t, c.ListenAddrs())
	event := relay.Event{Topic: "t", Key: "k", Payload: []byte(`1`)}
	wantAll(t, deliver(t, d, delivery(event)), relay.Published, "")
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce, kmsg.Metadata}, Topic: "t", Err: kerr.UnknownTopicOrPartition, Count: -1})
	wantAll(t, deliver(t, d, delivery(event), delivery(event)), relay.Reject, CodeUnknownTopic)
}

// What is not answered in time may have arrived; what was never sent has not.
func TestDeadline(t *testing.T) {
	event := relay.Event{Topic: "t", Key: "k", Payload: []byte(`1`)}
	for _, test := range []struct {
		key       kmsg.Key
		uncertain bool
	}{
		{kmsg.Produce, true},
		{kmsg.Metadata, false},
		{kmsg.InitProducerID, false},
	} {
		c := fake(t)
		hang := make(chan struct{})
		c.ControlKey(int16(test.key), func(kmsg.Request) (kmsg.Response, error, bool) {
			c.KeepControl()
			c.SleepControl(func() { <-hang })
			return nil, nil, false
		})
		d := newDestination(t, c.ListenAddrs())
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		began := time.Now()
		outcomes := d.Deliver(ctx, []relay.Delivery{delivery(event), delivery(event)})
		cancel()
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("%v: took %v", test.key, took)
		}
		wantAll(t, outcomes, relay.Unavailable, CodeTimeout)
		for _, o := range outcomes {
			if o.Uncertain != test.uncertain {
				t.Errorf("%v: uncertain %v, want %v", test.key, o.Uncertain, test.uncertain)
			}
		}
		close(hang)
	}
}

// The first try was sent and the connection ended before the answer. What the brokers say to the tries after it is not about the first,
// which may have been written.
func TestErrorAfterALostAnswer(t *testing.T) {
	for _, test := range []struct {
		fault *kerr.Error
		kind  relay.Kind
		code  string
	}{
		{kerr.NotEnoughReplicas, relay.Unavailable, CodeNoReplicas},
		{kerr.NotLeaderForPartition, relay.Unavailable, CodeNoLeader},
		{kerr.TopicAuthorizationFailed, relay.Reject, CodeTopicDenied},
		{kerr.MessageTooLarge, relay.Reject, CodeTooLarge},
	} {
		t.Run(test.fault.Message, func(t *testing.T) {
			t.Parallel()
			for _, lost := range []bool{true, false} {
				c := fake(t)
				if lost {
					c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
						return nil, errors.New("cut"), true
					})
				}
				c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "t", Err: test.fault, Count: -1})
				d := newDestination(t, c.ListenAddrs())
				event := relay.Event{Topic: "t", Key: "k", Payload: []byte(`1`)}
				outcomes := deliver(t, d, delivery(event), delivery(event))
				wantAll(t, outcomes, test.kind, test.code)
				for i, o := range outcomes {
					if o.Uncertain != lost {
						t.Errorf("answer lost %v: outcome %d has uncertain %v", lost, i, o.Uncertain)
					}
				}
			}
		})
	}
}

// idleProducers makes n producers that know the topic of a delivery, as calls under way at once do.
func idleProducers(t *testing.T, d *Destination, n int, one relay.Delivery) {
	t.Helper()
	var idle []*producer
	for range n {
		wantAll(t, deliver(t, d, one), relay.Published, "")
		idle = append(idle, d.pool.idle...)
		d.pool.idle = nil
	}
	d.pool.idle = idle
}

// A wave of which nothing is sent, since the client itself refuses one of its records, leaves the others as they were: the producer that
// had them is done with them before the next one gets them.
func TestOneThatIsNotSentAmongMany(t *testing.T) {
	c := fake(t)
	d := newDestination(t, c.ListenAddrs(), func(c *Config) { c.MaxRecordSize, c.BatchSize = 4000, 4000 })
	tooBig := `{"h":"` + strings.Repeat("x", 4000) + `"}`
	idleProducers(t, d, 20, delivery(relay.Event{Topic: "t", Key: "k", Payload: []byte(`1`)}))
	for len(d.pool.idle) > 1 {
		batch := []relay.Delivery{delivery(relay.Event{Topic: "t", Key: keyIn(0, 0), Payload: []byte(`1`), Headers: []byte(tooBig)})}
		for i := range 60 {
			batch = append(batch, delivery(relay.Event{Topic: "t", Key: keyIn(int32(i%3), 1), Payload: []byte(`1`)}))
		}
		outcomes := deliver(t, d, batch...)
		wantOutcome(t, "the big one", outcomes[0], relay.Reject, CodeTooLarge)
		wantAll(t, outcomes[1:], relay.Published, "")
	}
}

// Partitions that a topic has got are used at once, although producers that have been idle do not know of them.
func TestPartitionsAreAdded(t *testing.T) {
	c := fake(t, kfake.SeedTopics(1, "grows"))
	d := newDestination(t, c.ListenAddrs())
	on := func(key string) relay.Delivery {
		return delivery(relay.Event{Topic: "grows", Key: key, Payload: []byte(`1`)})
	}
	idleProducers(t, d, 3, on("k"))
	client, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := kadm.NewClient(client).UpdatePartitions(t.Context(), 3, "grows"); err != nil {
		t.Fatal(err)
	}
	d.topics.forget("grows") // it was looked up long ago
	for range 3 {
		wantAll(t, deliver(t, d, on(keyIn(0, 1)), on(keyIn(1, 1)), on(keyIn(2, 1)), on(keyIn(2, 1)), on("")), relay.Published, "")
	}
}
