package kafka

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pillarbox-dev/pillarbox/envelope"
)

// Config is what a Destination is made of. The zero value of a field means its default.
type Config struct {
	// Brokers are the addresses to begin with, host:port. The others are learnt from them. At least one.
	Brokers []string
	// Topic is where events go; {topic} stands for the event's topic_name. Default {topic}.
	Topic string
	// Topics are exceptions: the Kafka topic by topic_name. An envelope that names a topic itself (debezium) has the last word.
	Topics map[string]string
	// Envelope makes the record of an event. Default: the payload as it is.
	Envelope envelope.Envelope

	// MaxBatch is how many events one call of Deliver takes. Default 4,000.
	MaxBatch int
	// BatchSize is the size that a record batch of one partition may have, in bytes before compression. A record that is bigger
	// goes alone. Default 1,000,000. Producers often have 32 KiB (batch.size of the Java client is 16 KiB).
	BatchSize int
	// MaxRecordSize is the size that a record may have, in bytes before compression, with some 100 bytes around it. It must
	// not exceed max.message.bytes of the topics. Default 1 MiB, which is Kafka's default; at most 100 MiB.
	MaxRecordSize int
	// Linger holds back what does not fill BatchSize. The relay gathers what comes meanwhile into its next batch, so there are fewer
	// and bigger ones. Default 0: at once, since the relay gathers while a batch is under way anyway. Producers often have 10 ms.
	Linger time.Duration
	// Compression is zstd, lz4, snappy, gzip or none. Default zstd.
	Compression string
	// RequestTimeout is how long a broker may wait for its replicas before it gives up. Default 30 s. The deadline of a call of
	// Deliver ends it earlier.
	RequestTimeout time.Duration
	// ClientID is what the brokers call the relay in their logs and quotas. Default pillarbox.
	ClientID string

	// TLS encrypts. Default: no encryption.
	TLS *TLS
	// SASL authenticates. Default: nobody in particular.
	SASL *SASL

	// Observer is told what was sent. Default: nobody. Hooks are franz-go's, for its own measures.
	Observer Observer
	Hooks    []kgo.Hook
}

// Observer is told what the producers do. Its methods may be called by several goroutines at once.
type Observer interface {
	// Sent tells how long records were on their way, from the producer to the acknowledgement of all replicas.
	Sent(records int, took time.Duration)
	// Failed tells how many records were not acknowledged, and the code of their outcome.
	Failed(records int, code string)
}

// compressions are the codecs by their names.
var compressions = map[string]kgo.CompressionCodec{
	"zstd": kgo.ZstdCompression(), "lz4": kgo.Lz4Compression(), "snappy": kgo.SnappyCompression(), "gzip": kgo.GzipCompression(),
	"none": kgo.NoCompression(),
}

const (
	placeholder = "{topic}"
	defaultPort = "9092"
)

// Limits on what can be set, in bytes and events.
const (
	minSize, maxSize   = 1 << 10, 100 << 20 // a request can have no more: socket.request.max.bytes, and the client's own limit
	maxBatch           = 100_000
	maxLinger          = 5 * time.Second
	defaultBatchSize   = 1_000_000
	defaultRecordSize  = 1 << 20
	defaultMaxBatch    = 4000
	defaultRequestTime = 30 * time.Second
)

// withDefaults returns the configuration with its defaults filled in.
func (c Config) withDefaults() Config {
	if c.Topic == "" {
		c.Topic = placeholder
	}
	if c.Envelope == nil {
		c.Envelope, _ = envelope.New(envelope.Config{Target: envelope.Kafka}) // the payload alone has nothing to go wrong
	}
	if c.MaxBatch == 0 {
		c.MaxBatch = defaultMaxBatch
	}
	if c.MaxRecordSize == 0 {
		c.MaxRecordSize = defaultRecordSize
	}
	if c.BatchSize == 0 {
		c.BatchSize = min(defaultBatchSize, c.MaxRecordSize)
	}
	if c.Compression == "" {
		c.Compression = "zstd"
	}
	if c.RequestTimeout == 0 {
		c.RequestTimeout = defaultRequestTime
	}
	if c.ClientID == "" {
		c.ClientID = "pillarbox"
	}
	if c.Observer == nil {
		c.Observer = unobserved{}
	}
	brokers := make([]string, len(c.Brokers))
	for i, b := range c.Brokers {
		brokers[i] = withPort(b)
	}
	c.Brokers = brokers
	return c
}

func withPort(broker string) string {
	if _, _, err := net.SplitHostPort(broker); err != nil {
		return net.JoinHostPort(strings.Trim(broker, "[]"), defaultPort)
	}
	return broker
}

// problems returns all that is wrong, with the defaults filled in. Each begins with the name of its setting.
func (c *Config) problems() (problems []error) {
	wrong := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if len(c.Brokers) == 0 {
		wrong("brokers is empty: name at least one, as host:9092")
	}
	for _, b := range c.Brokers {
		host, port, _ := net.SplitHostPort(b)
		if number, err := strconv.ParseUint(port, 10, 16); err != nil || number == 0 || host == "" || strings.ContainsAny(host, "/@ ") {
			wrong("brokers: %q is no address: write host:9092", b)
		}
	}
	if fault := topicFault(strings.ReplaceAll(c.Topic, placeholder, "t")); fault != "" {
		wrong("topic %q %s: %s", c.Topic, fault, topicHint)
	}
	for _, from := range slices.Sorted(maps.Keys(c.Topics)) {
		if fault := topicFault(c.Topics[from]); fault != "" {
			wrong("topic_map of %q: topic %q %s: %s", from, c.Topics[from], fault, topicHint)
		}
	}
	if c.MaxBatch < 1 || c.MaxBatch > maxBatch {
		wrong("max_batch %d is outside 1 to %d", c.MaxBatch, maxBatch)
	}
	if c.MaxRecordSize < minSize || c.MaxRecordSize > maxSize {
		wrong("max_record_size %d is outside %d to %d", c.MaxRecordSize, minSize, maxSize)
	}
	if c.BatchSize < minSize || c.BatchSize > c.MaxRecordSize {
		wrong("batch_size %d is outside %d to max_record_size, which is %d", c.BatchSize, minSize, c.MaxRecordSize)
	}
	if c.Linger < 0 || c.Linger > maxLinger {
		wrong("linger %v is outside 0 to %v", c.Linger, maxLinger)
	}
	if _, known := compressions[c.Compression]; !known {
		wrong("compression is %q: it must be one of %s", c.Compression, strings.Join(slices.Sorted(maps.Keys(compressions)), ", "))
	}
	if c.RequestTimeout < time.Second {
		wrong("request_timeout %v is less than 1s", c.RequestTimeout)
	}
	if c.TLS != nil {
		problems = append(problems, c.TLS.problems()...)
	}
	if c.SASL != nil {
		problems = append(problems, c.SASL.problems()...)
	}
	return problems
}

// unobserved is the Observer that nobody asked for.
type unobserved struct{}

func (unobserved) Sent(int, time.Duration) {}
func (unobserved) Failed(int, string)      {}
