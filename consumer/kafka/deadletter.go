package kafka

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Headers of a dead letter, on top of the message's own.
const (
	HeaderCode      = "deadLetterCode"      // why, of a bounded set: HANDLER, NO_EVENT_ID …
	HeaderReason    = "deadLetterReason"    // the error's text, at most 2,000 bytes
	HeaderAttempts  = "deadLetterAttempts"  // how often it was tried
	HeaderTopic     = "deadLetterTopic"     // where it came from …
	HeaderPartition = "deadLetterPartition" // …
	HeaderOffset    = "deadLetterOffset"    // …
	HeaderConsumer  = "deadLetterConsumer"  // and whose inbox does not know it
	HeaderTime      = "deadLetterTime"      // when, RFC 3339, UTC
)

const (
	maxReason        = 2000
	letterTimeout    = 10 * time.Second
	maxLetter        = 100 << 20 // the topic's limit is what counts, not the client's
	headersOfLetters = "deadLetter"
)

// bury writes the message to the dead-letter topic, for as long as it takes; the partition waits. It returns false when the
// partition goes before that.
func (c *Consumer[T]) bury(p *partition, r Result) bool {
	letter := c.letter(r)
	for try := 1; ; try++ {
		err := c.letters.put(p.ctx, letter)
		if err == nil {
			break
		}
		if p.ctx.Err() != nil {
			return false
		}
		failed := Result{Kind: Unavailable, Message: r.Message, Code: CodeDeadLetter, Attempt: r.Attempt, Err: fmt.Errorf(
			"dead letter to %s: %w: the topic must exist and take it; the partition waits", c.deadLetterTopic(r.Message.Topic), err)}
		c.tell(failed)
		c.complain(failed, try)
		p.block(CodeDeadLetter)
		if !wait(p.quit, min(c.backoff(try), unavailableMax)) {
			return false
		}
	}
	r.Kind = DeadLettered
	c.tell(r)
	c.Log.LogAttrs(context.Background(), slog.LevelError, "message dead-lettered", c.about(r)...)
	p.settle(1)
	return true
}

// letter makes the record. What an earlier dead letter of the message said is taken out.
func (c *Consumer[T]) letter(r Result) *kgo.Record {
	m := r.Message
	record := &kgo.Record{Topic: c.deadLetterTopic(m.Topic), Key: m.Key, Value: m.Value}
	for _, h := range m.Headers {
		if !strings.HasPrefix(h.Key, headersOfLetters) {
			record.Headers = append(record.Headers, h)
		}
	}
	reason := r.Err.Error()
	for _, h := range [][2]string{
		{HeaderCode, r.Code}, {HeaderReason, strings.ToValidUTF8(reason[:min(len(reason), maxReason)], "")},
		{HeaderAttempts, strconv.Itoa(r.Attempt)}, {HeaderTopic, m.Topic}, {HeaderPartition, strconv.Itoa(int(m.Partition))},
		{HeaderOffset, strconv.FormatInt(m.Offset, 10)}, {HeaderConsumer, c.Consumer},
		{HeaderTime, time.Now().UTC().Format(time.RFC3339Nano)},
	} {
		record.Headers = append(record.Headers, kgo.RecordHeader{Key: h[0], Value: []byte(h[1])})
	}
	return record
}

// deadLetters writes one dead letter at a time. A producer that did not end well is thrown away, with what it still held.
type deadLetters struct {
	opts   []kgo.Opt
	turn   chan struct{} // holds something while it is free
	client *kgo.Client   // nil: there is none. Of whoever has the turn
}

// newDeadLetters: acks=all is the client's default. It may give up a record that is under way only without idempotence; a
// letter that is there twice does no harm.
func newDeadLetters(connect []kgo.Opt) *deadLetters {
	d := &deadLetters{turn: make(chan struct{}, 1)}
	d.opts = slices.Concat(connect, []kgo.Opt{
		kgo.DisableIdempotentWrite(), kgo.MaxProduceRequestsInflightPerBroker(1), kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.RecordDeliveryTimeout(letterTimeout), kgo.ProduceRequestTimeout(letterTimeout / 2), kgo.UnknownTopicRetries(1),
		kgo.ProducerBatchMaxBytes(maxLetter), kgo.BrokerMaxWriteBytes(2 * maxLetter), kgo.ProducerLinger(0),
	})
	d.turn <- struct{}{}
	return d
}

// put returns nil when all replicas have the letter.
func (d *deadLetters) put(ctx context.Context, letter *kgo.Record) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*letterTimeout)
	defer cancel()
	select {
	case <-d.turn:
		defer func() { d.turn <- struct{}{} }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if d.client == nil {
		if d.client, err = kgo.NewClient(d.opts...); err != nil {
			return err
		}
	}
	copied := *letter // the client writes into it
	if err = d.client.ProduceSync(ctx, &copied).FirstErr(); err != nil {
		d.client.Close()
		d.client = nil
	}
	return err
}

// close waits for the one under way.
func (d *deadLetters) close() {
	<-d.turn
	defer func() { d.turn <- struct{}{} }()
	if d.client != nil {
		d.client.Close()
		d.client = nil
	}
}
