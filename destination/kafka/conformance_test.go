package kafka

import (
	"context"
	"crypto/rand"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pillarbox-dev/pillarbox/internal/kafkatest"
	"github.com/pillarbox-dev/pillarbox/relay"
	"github.com/pillarbox-dev/pillarbox/relay/relaytest"
)

// The suite that every destination passes, against a real broker behind a proxy.
func TestConformance(t *testing.T) {
	cluster := kafkatest.Shared(t)
	features := relaytest.DestinationFeatures{Refuses: true, Tombstones: true, MaxPayload: 1_000_000, Topic: "conformance"}
	relaytest.TestDestination(t, features, func(t *testing.T) relaytest.Rig {
		topic := cluster.Topic(t, 3)
		consumer, err := cluster.Client(kgo.ConsumeTopics(topic))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(consumer.Close)
		return &farEnd{cluster: cluster, consumer: consumer, destination: newDestination(t, cluster.Seeds(), func(c *Config) {
			c.Topics = map[string]string{"conformance": topic}
			c.MaxRecordSize = 8 << 20
		})}
	})
}

// farEnd is a topic of the broker.
type farEnd struct {
	cluster     *kafkatest.Cluster
	consumer    *kgo.Client
	destination *Destination
	received    []relaytest.Received
}

func (f *farEnd) Destination() relay.Destination { return f.destination }

func (f *farEnd) Received(testing.TB) []relaytest.Received {
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	for _, r := range f.consumer.PollFetches(ctx).Records() {
		f.received = append(f.received, relaytest.Received{ID: eventID(r), Key: string(r.Key), Payload: r.Value})
	}
	return f.received
}

func (f *farEnd) Refused(testing.TB) relay.Event {
	big := make([]byte, 2<<20) // random, so that it does not shrink
	_, _ = rand.Read(big)
	return relay.Event{Key: "k", Payload: big, Binary: true}
}

func (f *farEnd) Hang(testing.TB) (resume func()) { return f.cluster.Proxy.Hang() }

func (f *farEnd) Stop(t testing.TB) (start func()) {
	again := f.cluster.Proxy.Stop()
	return func() {
		if err := again(); err != nil {
			t.Error(err)
		}
	}
}
