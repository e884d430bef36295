package dashboard

import (
	"time"

	"github.com/pillarbox-dev/pillarbox/ops"
)

// Latency is how long one kind of call takes, as this process has seen it since it started.
type Latency struct {
	Destination string
	What        string // like "read" or "settle"
	Count       uint64
	Mean        ops.Seconds
	// P50 and P99 are upper bounds: the ends of the histogram's buckets that they fall into. 0: above the last one.
	P50, P99 ops.Seconds
}

// Producer is what a Kafka producer of this process has done since it started.
type Producer struct {
	Destination     string
	Records, Errors uint64
	RatePerSecond   float64 // acknowledged, lately
	// WrittenBytes and ReadBytes are what went over its connections.
	WrittenBytes, ReadBytes int64
	ConnectFailures         uint64
	// Send is from handing records over to their acknowledgement, Request one produce request.
	Send, Request Latency
	// BatchRecords and BatchBytes are those of a record batch, Compression how many times smaller it was made, on average; 0:
	// nothing was sent.
	BatchRecords float64
	BatchBytes   int64
	Compression  float64
}

// ErrorRate is the part of the records that was not acknowledged.
func (p Producer) ErrorRate() float64 {
	if p.Records+p.Errors == 0 {
		return 0
	}
	return float64(p.Errors) / float64(p.Records+p.Errors)
}

// Consumer is what has become of the events behind a destination.
type Consumer struct {
	Destination string
	// Group is a consumer group of Kafka; Lag is how many records it has still to handle, over all its Topics.
	Group   string
	State   string
	Members int
	Lag     int64
	Topics  []TopicLag
	// DeadLetterTopic holds DeadLetters records.
	DeadLetterTopic string
	DeadLetters     int64
	// LagKnown and LettersKnown tell what Kafka has answered.
	LagKnown, LettersKnown bool
	// Inbox is the name that a consumer has in its inbox; Handled is how many events are in it, Duplicates how often one of them
	// came again. InboxKnown tells that its database has answered.
	Inbox               string
	Handled, Duplicates ops.Count
	LastHandled         *time.Time
	InboxKnown          bool
	// PossibleDuplicates are the deliveries of this process that the receiver may have had before, when HasDuplicates.
	PossibleDuplicates uint64
	HasDuplicates      bool
	// Problem is why something of it is not known.
	Problem string
}

// TopicLag is the lag of a group in one topic.
type TopicLag struct {
	Topic      string
	Partitions int
	Lag        int64
}
