package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pillarbox-dev/pillarbox/outbox"
	"github.com/pillarbox-dev/pillarbox/outbox/inbox"
)

// Inbox tells which events are new; *inbox.Inbox does.
type Inbox interface {
	FirstOf(ctx context.Context, tx outbox.Tx, consumer string, events ...inbox.Event) ([]bool, error)
}

// Config says what is consumed and how. T is the driver's transaction: *sql.Tx, pgx.Tx. Without a default: Brokers, Topics,
// Group, Inbox, Begin and Handle. The zero value of any other field means its default.
type Config[T any] struct {
	// Brokers are the addresses to begin with, host:port. The others are learnt from them.
	Brokers []string
	// Topics are consumed. They are never created here.
	Topics []string
	// Group is the consumer group. Its members share the partitions.
	Group string

	// Consumer is the name under which the inbox records what was handled. Default: Group.
	Consumer string
	Inbox    Inbox
	// Begin begins a transaction: outbox.BeginSQL(db, nil), outbox.BeginPgx(pool). READ COMMITTED is best.
	Begin outbox.Begin[T]
	// Handle handles a message, in tx, and neither commits nor rolls back. It is called once for each event that is committed. An
	// error or a panic rolls everything back, the inbox's record included, and it is tried again: see TryAgain and Reject.
	// The context ends after HandleTimeout, and when the partition is gone. It is called by several goroutines at once,
	// for messages of different partitions.
	Handle func(ctx context.Context, tx T, m Message) error
	// SameBody returns what must be the same whenever the event id is; anything else is dead-lettered as DIFFERENT_BODY. Default:
	// the value. Needed for envelopes that say when they were sent (publishedAt): return the part that stays, or nil to compare
	// the id alone.
	SameBody func(m Message) []byte

	// EventIDHeader carries the event id. A message without one is dead-lettered as NO_EVENT_ID. Default: eventId.
	EventIDHeader string
	// DeadLetterTopic is where poison ends; {topic} stands for the message's topic. It must exist, and take records a few KiB
	// bigger than those of the topics (max.message.bytes). Default: {topic}.dead-letter.
	DeadLetterTopic string
	// MaxAttempts is how often a message is tried before it is dead-lettered. Default 5.
	MaxAttempts int
	// RetryMin is the back-off after the first failed attempt. It doubles with each, up to RetryMax. Defaults 200 ms, 30 s.
	RetryMin, RetryMax time.Duration
	// HandleTimeout bounds one attempt, of a whole batch too. Default 30 s.
	HandleTimeout time.Duration

	// Batch is how many messages of a partition share a transaction, of those that are there anyway. When one of them fails, all of
	// them are rolled back and handled one by one; the attempt in the batch is not counted. More is faster, and holds locks
	// longer. Default 1, at most 1,000.
	Batch int
	// Concurrency is how many transactions are open at once, each with a connection of the database. Default 8.
	Concurrency int
	// QueueRecords and QueueBytes bound what a partition has waiting: what fills one pauses the partition. One fetch more may
	// be there. Defaults 1,000, 4 MiB.
	QueueRecords, QueueBytes int
	// FetchBytes is how much a broker is asked for at once, compressed as it is, and FetchPartitionBytes how much of one partition.
	// A single bigger record comes all the same. Defaults 8 MiB, 1 MiB.
	FetchBytes, FetchPartitionBytes int

	// StartAtEnd makes a group that has no offset yet begin with what comes from now on: its first start commits that. In a partition
	// that is added later it begins with what comes once it knows of it. Default: with the oldest there is, so that nothing is lost of what
	// came before.
	StartAtEnd bool
	// CommitInterval is how often offsets are committed. A crash repeats what was handled since, which costs the inbox's answer
	// and nothing else. Default 1 s.
	CommitInterval time.Duration
	// Finish is how long the transactions under way may take when their partition goes or the consumer stops. Then they are
	// rolled back. Default 10 s, at most 45 s.
	Finish time.Duration
	// SessionTimeout is how long a member that died keeps its partitions. The brokers' bounds are 6 s to 30 min by default.
	// Default 45 s.
	SessionTimeout time.Duration
	// ClientID is what the brokers call the consumer in their logs and quotas. Default pillarbox-consumer.
	ClientID string
	// Client are further options of the clients: TLS (kgo.DialTLSConfig), SASL (kgo.SASL), hooks. What is set by the fields above, and
	// what the promises need, has the last word.
	Client []kgo.Opt

	// Log is told what goes wrong, with topic, partition, offset and event id, never a value. Default: slog.Default().
	Log *slog.Logger
	// Observe is called with the result of each attempt, for metrics and traces, by several goroutines at once. Nil: nobody is told.
	Observe func(Result)
}

const placeholder = "{topic}"

// Limits on what can be set, and fixed times.
const (
	maxBatch       = 1000
	maxConcurrency = 10_000
	maxFinish      = 45 * time.Second

	rebalanceTimeout = 60 * time.Second // Finish, the grace and a commit fit in
	fetchWait        = 250 * time.Millisecond
	commitTimeout    = 5 * time.Second
	heartbeat        = time.Second // a member learns of a rebalance by it
	// unavailableMax bounds the back-off while it is not the message's fault, so that work goes on soon after the database is back.
	unavailableMax = 3 * time.Second
)

func (c *Config[T]) setDefaults() {
	setDefault(&c.Consumer, c.Group)
	setDefault(&c.EventIDHeader, "eventId")
	setDefault(&c.DeadLetterTopic, placeholder+".dead-letter")
	setDefault(&c.MaxAttempts, 5)
	setDefault(&c.RetryMin, 200*time.Millisecond)
	setDefault(&c.RetryMax, max(30*time.Second, c.RetryMin))
	setDefault(&c.HandleTimeout, 30*time.Second)
	setDefault(&c.Batch, 1)
	setDefault(&c.Concurrency, 8)
	setDefault(&c.QueueRecords, max(1000, c.Batch))
	setDefault(&c.QueueBytes, 4<<20)
	setDefault(&c.FetchBytes, 8<<20)
	setDefault(&c.FetchPartitionBytes, min(1<<20, c.FetchBytes))
	setDefault(&c.CommitInterval, time.Second)
	setDefault(&c.Finish, 10*time.Second)
	setDefault(&c.SessionTimeout, 45*time.Second)
	setDefault(&c.ClientID, "pillarbox-consumer")
	if c.SameBody == nil {
		c.SameBody = func(m Message) []byte { return m.Value }
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.Observe == nil {
		c.Observe = func(Result) {}
	}
}

func setDefault[V comparable](field *V, value V) {
	var zero V
	if *field == zero {
		*field = value
	}
}

// check returns every problem, with the defaults filled in.
func (c *Config[T]) check() error {
	var problems []error
	add := func(wrong bool, format string, args ...any) {
		if wrong {
			problems = append(problems, fmt.Errorf(format, args...))
		}
	}
	add(len(c.Brokers) == 0, "Brokers is empty: name at least one, as host:9092")
	add(slices.Contains(c.Brokers, ""), "Brokers holds an empty address: write host:9092")
	add(len(c.Topics) == 0, "Topics is empty: name at least one")
	add(c.Group == "", "Group is empty: name the consumer group")
	add(c.Inbox == nil, "Inbox is nil: make one with inbox.New")
	add(c.Begin == nil, "Begin is nil: outbox.BeginSQL(db, nil) for example")
	add(c.Handle == nil, "Handle is nil: give the function that handles a message")
	add(len(c.Consumer) > maxID, "Consumer has %d bytes: at most %d are kept", len(c.Consumer), maxID)
	for _, topic := range c.Topics {
		add(!validTopic(topic), "topic %q: use 1 to 249 of a-z A-Z 0-9 . _ -", topic)
		letters := c.deadLetterTopic(topic)
		add(!validTopic(letters), "dead-letter topic %q of %q: use 1 to 249 of a-z A-Z 0-9 . _ -", letters, topic)
		add(slices.Contains(c.Topics, letters), "dead letters of %q go to %q, which is consumed too: they would go in circles", topic, letters)
	}
	between(&problems, "MaxAttempts", c.MaxAttempts, 1, 1000)
	between(&problems, "Batch", c.Batch, 1, maxBatch)
	between(&problems, "Concurrency", c.Concurrency, 1, maxConcurrency)
	between(&problems, "QueueRecords", c.QueueRecords, c.Batch, 1_000_000)
	between(&problems, "QueueBytes", c.QueueBytes, 1<<10, 1<<30)
	between(&problems, "FetchBytes", c.FetchBytes, 1<<10, 1<<30)
	between(&problems, "FetchPartitionBytes", c.FetchPartitionBytes, 1<<10, c.FetchBytes)
	between(&problems, "RetryMin", c.RetryMin, time.Millisecond, time.Hour)
	between(&problems, "RetryMax", c.RetryMax, c.RetryMin, 24*time.Hour)
	between(&problems, "HandleTimeout", c.HandleTimeout, time.Millisecond, time.Hour)
	between(&problems, "CommitInterval", c.CommitInterval, 100*time.Millisecond, time.Minute)
	between(&problems, "Finish", c.Finish, time.Millisecond, maxFinish)
	between(&problems, "SessionTimeout", c.SessionTimeout, time.Second, 30*time.Minute)
	return errors.Join(problems...)
}

// between adds a problem unless low ≤ value ≤ high.
func between[V int | time.Duration](problems *[]error, name string, value, low, high V) {
	if value < low || value > high {
		*problems = append(*problems, fmt.Errorf("%s is %v: choose from %v to %v", name, value, low, high))
	}
}

// validTopic tells whether Kafka takes the name.
func validTopic(name string) bool {
	return name != "" && len(name) <= 249 && name != "." && name != ".." && !strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._-", r)
	})
}

func (c *Config[T]) deadLetterTopic(topic string) string {
	return strings.ReplaceAll(c.DeadLetterTopic, placeholder, topic)
}
