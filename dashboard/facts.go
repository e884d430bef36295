package dashboard

import "github.com/pillarbox-dev/pillarbox/ops"

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
	Destination              string
	Records, Errors          uint64
	RatePerSecond            float64 // acknowledged, since the last look
	WrittenBytes, ReadBytes  uint64
	ConnectFailures          uint64
	Send, Request            Latency // to the acknowledgement; of one produce request
	BatchRecords, BatchBytes float64 // on average
	Compression              float64 // how many times smaller, on average; 0: nothing sent
	CompressionConfigured    string
}

// Consumer is what has become of the events behind a destination.
type Consumer struct {
	Destination string
	// Group is a consumer group of Kafka, and Lag how many records it has still to handle, over all its Topics.
	Group   string
	State   string
	Members int
	Lag     int64
	Topics  []TopicLag
	// DeadLetterTopic has DeadLetters records.
	DeadLetterTopic string
	DeadLetters     int64
	// Inbox is the name of a consumer's inbox, and Handled how many events are in it.
	Inbox       string
	Handled     ops.Count
	LastHandled ops.Seconds // since the newest
	Problem     string      // why something of it is not known
}

// TopicLag is the lag of a group in one topic.
type TopicLag struct {
	Topic      string
	Partitions int
	Lag        int64
}
