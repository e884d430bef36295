package envelope

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// Message is what is sent of an event.
type Message struct {
	// Topic is where it goes when that is not the event's own topic. Kafka only.
	Topic string
	// Key decides about the partition. Nil: there is none; an empty one is a key like any other.
	Key []byte
	// Value is the body. Nil is a tombstone in Kafka and an empty body in HTTP. It may be the event's own memory: it is not
	// changed.
	Value []byte
	// ContentType is the media type of Value. "" when there is no Value.
	ContentType string
	// Headers are what the envelope itself needs, in order. They win over what the event or the destination has under the same
	// name. Names and values fit the target: in HTTP they are visible ASCII.
	Headers []Header
	// Complete says that Headers are all that may be sent: neither the event's own headers nor the destination's go along.
	// Kafka only.
	Complete bool
	// Time is the record's timestamp. Zero: the time of publishing.
	Time time.Time
}

// Header is a name and its bytes. A nil Value is Kafka's null, which is not the empty value.
type Header struct {
	Name  string
	Value []byte
}

// Envelope makes messages of events. Its methods may be called by several goroutines at once.
type Envelope interface {
	// Wrap returns what is sent of the event. The error is an *InvalidError, or ErrTimeout; see Outcome.
	Wrap(*relay.Event) (Message, error)
}

// Target is what the messages are for.
type Target string

const (
	Kafka Target = "kafka"
	HTTP  Target = "http"
)

// The names of the envelopes.
const (
	NamePayload     = "payload"
	NameEnvelope    = "envelope"
	NameCloudEvents = "cloudevents"
	NameJQ          = "jq"
	NameDebezium    = "debezium"
)

// Config says which envelope it is. Options of another one than the named are refused.
type Config struct {
	// Name: payload, envelope, cloudevents, jq or debezium. Default payload.
	Name string
	// Target is what the messages are for. Required.
	Target Target

	// Producer names the service that the events come from. Required for envelope; jq may use it.
	Producer string
	// WrapTombstones, for envelope and jq to Kafka, sends an event without a payload as a value that says so. Default: it has
	// no value at all, so that a compacted topic forgets the key. To HTTP it is always wrapped.
	WrapTombstones bool

	// CloudEvents, JQ and Debezium are the options of those envelopes.
	CloudEvents *CloudEvents
	JQ          *JQ
	Debezium    *Debezium

	// Now is the clock for publishedAt. Default time.Now.
	Now func() time.Time
}

// New returns the envelope. The error joins everything that is wrong with c.
func New(c Config) (Envelope, error) {
	if c.Name == "" {
		c.Name = NamePayload
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	made, problems := c.make()
	if problems = append(c.problems(), problems...); len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	return made, nil
}

func (c *Config) make() (Envelope, []error) {
	switch c.Name {
	case NamePayload:
		return payload{}, nil
	case NameEnvelope:
		return newWrapped(c)
	case NameCloudEvents:
		return newCloudEvents(c)
	case NameJQ:
		return newJQ(c)
	case NameDebezium:
		return newDebezium(c)
	}
	names := []string{NamePayload, NameEnvelope, NameCloudEvents, NameJQ, NameDebezium}
	return nil, []error{fmt.Errorf("envelope %q is not known: choose one of %s", c.Name, strings.Join(names, ", "))}
}

// problems are those that do not depend on what one envelope wants.
func (c *Config) problems() (problems []error) {
	if c.Target != Kafka && c.Target != HTTP {
		problems = append(problems, fmt.Errorf("target is %q: it must be %s or %s", c.Target, Kafka, HTTP))
	}
	shared := c.Name == NameEnvelope || c.Name == NameJQ
	for _, option := range []struct {
		name  string
		given bool
		fits  bool
	}{
		{"producer", c.Producer != "", shared},
		{"wrap_tombstones", c.WrapTombstones, shared},
		{NameCloudEvents, c.CloudEvents != nil, c.Name == NameCloudEvents},
		{NameJQ, c.JQ != nil, c.Name == NameJQ},
		{NameDebezium, c.Debezium != nil, c.Name == NameDebezium},
	} {
		if option.given && !option.fits {
			problems = append(problems, fmt.Errorf("%s is set, but the envelope is %s: take it out, or choose another envelope",
				option.name, c.Name))
		}
	}
	if c.WrapTombstones && c.Target == HTTP && shared {
		problems = append(problems,
			errors.New("wrap_tombstones is for Kafka alone: to HTTP an event without a payload is always wrapped"))
	}
	return problems
}

// dropsTombstones tells whether an event without a payload has no value at all.
func (c *Config) dropsTombstones() bool { return c.Target == Kafka && !c.WrapTombstones }

const (
	typeJSON   = "application/json"
	typeBinary = "application/octet-stream"
)

// laneKey is the key that keeps the order of lanes: the partition key.
func laneKey(e *relay.Event) []byte {
	if e.Key == "" {
		return nil
	}
	return []byte(e.Key)
}
