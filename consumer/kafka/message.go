package kafka

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"
)

// maxID bounds an event id and a consumer's name, in bytes, as the inbox does.
const maxID = 255

// Message is one record of a topic. Its bytes must not be changed.
type Message struct {
	// EventID is the event's, from its header.
	EventID   string
	Topic     string
	Partition int32
	Offset    int64
	Key       []byte
	// Value is nil for a tombstone.
	Value []byte
	// Headers are in their order; names may be there more than once.
	Headers []kgo.RecordHeader
	// Time is the record's: when it was made, or written, as the topic is set.
	Time time.Time

	record *kgo.Record // as it came
}

// Header returns the value of the last header of that name, and whether there is one.
func (m Message) Header(name string) (string, bool) {
	for i := len(m.Headers) - 1; i >= 0; i-- {
		if m.Headers[i].Key == name {
			return string(m.Headers[i].Value), true
		}
	}
	return "", false
}

func newMessage(record *kgo.Record) Message {
	return Message{Topic: record.Topic, Partition: record.Partition, Offset: record.Offset, Key: record.Key, Value: record.Value,
		Headers: record.Headers, Time: record.Timestamp, record: record}
}

// size is about what the message takes in memory, in bytes.
func (m Message) size() int {
	const overhead = 256
	n := overhead + len(m.Key) + len(m.Value)
	for _, h := range m.Headers {
		n += len(h.Key) + len(h.Value)
	}
	return n
}

// identify reads the event id from its header.
func (m *Message) identify(header string) error {
	var found []string
	for _, h := range m.Headers {
		if h.Key == header {
			found = append(found, string(h.Value))
		}
	}
	switch {
	case len(found) == 0 || len(found) == 1 && found[0] == "":
		return Reject(CodeNoEventID, fmt.Errorf("the header %s is missing or empty: the sender must give each event an id", header))
	case len(found) > 1:
		return Reject(CodeBadEventID, fmt.Errorf("the header %s is there %d times: send one", header, len(found)))
	case len(found[0]) > maxID:
		return Reject(CodeBadEventID, fmt.Errorf("the event id has %d bytes: at most %d are kept", len(found[0]), maxID))
	case !utf8.ValidString(found[0]), strings.ContainsRune(found[0], 0):
		return Reject(CodeBadEventID, errors.New("the event id is not UTF-8, or holds a NUL character"))
	}
	m.EventID = found[0]
	return nil
}
