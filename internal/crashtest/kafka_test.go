package crashtest

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pillarbox-dev/pillarbox/destination/kafka"
	"github.com/pillarbox-dev/pillarbox/internal/kafkatest"
	"github.com/pillarbox-dev/pillarbox/relay"
	"github.com/pillarbox-dev/pillarbox/relay/relaytest"
)

// newDestination is where a relay sends events: the receiver, or Kafka.
func newDestination(args processArgs) (_ relay.Destination, closeIt func(), err error) {
	if args.Brokers == nil {
		return &poster{args: args}, func() {}, nil
	}
	d, err := kafka.New(kafka.Config{Brokers: args.Brokers, Topic: args.Topic, MaxBatch: cmp.Or(args.Batch, 20)})
	if err != nil {
		return nil, nil, err
	}
	return labelled{d, args}, d.Close, nil
}

// labelled puts into headers what the verdict wants to know of a delivery.
type labelled struct {
	*kafka.Destination
	args processArgs
}

func (l labelled) Deliver(ctx context.Context, batch []relay.Delivery) []relay.Outcome {
	copies := make([]relay.Delivery, len(batch))
	for i, d := range batch {
		event := *d.Event
		event.Headers, _ = json.Marshal(map[string]string{
			"owner": l.args.Name, "seq": strconv.FormatInt(d.Seq, 10), "possibleDuplicate": strconv.FormatBool(d.PossibleDuplicate),
		})
		d.Event = &event
		copies[i] = d
	}
	return l.Destination.Deliver(ctx, copies)
}

// collect lets the receiver have what arrives in the topic, until the test ends.
func (b *bench) collect(cluster *kafkatest.Cluster) {
	b.Helper()
	b.brokers, b.topic = cluster.DirectSeeds(), cluster.Topic(b, 3)
	consumer, err := cluster.Client(kgo.ConsumeTopics(b.topic))
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			for _, r := range consumer.PollFetches(ctx).Records() {
				b.receiver.arrive(parcelOf(r))
			}
		}
	}()
	b.Cleanup(func() {
		stop()
		<-done
		consumer.Close()
	})
}

func parcelOf(r *kgo.Record) *parcel {
	said := map[string]string{}
	for _, h := range r.Headers {
		said[h.Key] = string(h.Value)
	}
	seq, _ := strconv.ParseInt(said["seq"], 10, 64)
	return &parcel{Owner: said["owner"], Deliveries: []parcelDelivery{{
		Seq: seq, ID: said["eventId"], Key: string(r.Key), PossibleDuplicate: said["possibleDuplicate"] == "true",
	}}}
}

// The same with Kafka as the destination: relays are killed at each crash point about a delivery, while producers are at work.
func TestCrashPointsWithKafka(t *testing.T) {
	cluster := kafkatest.Shared(t)
	for _, test := range []struct {
		name  string
		point relaytest.Point
		nth   int // at most
	}{
		{"before deliver", relaytest.BeforeDeliver, 60},
		{"after deliver, before settle", relaytest.AfterDeliver, 60},
		{"before settle", relaytest.BeforeSettle, 20},
		{"after settle", relaytest.AfterSettle, 20},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, "postgres", "")
			b.collect(cluster)
			load := b.load()
			var wrecks []wreck
			for range 2 {
				p := b.relay(processArgs{Point: test.point, Nth: 1 + rand.IntN(test.nth)})
				wrecks = append(wrecks, b.bury(p))
			}
			last := b.relay(processArgs{})
			last.hear("notice lease_taken")
			time.Sleep(200 * time.Millisecond) // it takes over under load
			load.stop()
			b.drained()
			last.stop()
			if repeats := b.verdict(wrecks...); repeats == 0 && test.point == relaytest.AfterDeliver {
				t.Error("nothing was sent twice: no relay died between delivering and settling")
			}
			if receipts := b.texts("select receipt from outbox_delivery where receipt !~ '^[0-2]@[0-9]+$'"); len(receipts) > 0 {
				t.Errorf("receipts are not partition@offset: %q", fmt.Sprintf("%.5q", receipts))
			}
		})
	}
}
