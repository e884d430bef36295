package kafka

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pillarbox-dev/pillarbox/envelope"
	"github.com/pillarbox-dev/pillarbox/relay"
)

// The headers that tell about the event. They win over the event's own, and the envelope's win over both. correlationId is one
// of the event's own.
const (
	headerID      = "eventId"
	headerType    = "eventType"
	headerVersion = "eventVersion"
	headerSchema  = "schemaRef"
)

// composer makes the records of one call. Their headers lie in two slabs.
type composer struct {
	d       *Destination
	headers []kgo.RecordHeader
	text    []byte
	own     []kgo.RecordHeader // of the event at hand
}

func newComposer(d *Destination, n int) *composer {
	return &composer{d: d, headers: make([]kgo.RecordHeader, 0, 5*n), text: make([]byte, 0, 80*n)}
}

// compose fills in the record of an event; what stops it is about the event.
func (m *composer) compose(e *relay.Event, into *kgo.Record) *relay.Outcome {
	wrapped, err := m.d.config.Envelope.Wrap(e)
	if err != nil {
		out := envelope.Outcome(err)
		return &out
	}
	into.Topic = m.d.topicOf(e.Topic)
	if wrapped.Topic != "" {
		into.Topic = wrapped.Topic
	}
	if fault := topicFault(into.Topic); fault != "" {
		return reject(CodeInvalidTopic, fmt.Sprintf("topic %.300q %s: %s; map it to one with topic_map, or discard the event",
			into.Topic, fault, topicHint))
	}
	into.Key, into.Value, into.Timestamp = wrapped.Key, wrapped.Value, wrapped.Time
	if into.Timestamp.IsZero() {
		into.Timestamp = time.Now()
	}
	from := len(m.headers)
	if !wrapped.Complete {
		m.add(headerID, e.ID)
		m.add(headerType, e.Type)
		m.addNumber(headerVersion, e.Version)
		if e.SchemaRef != "" {
			m.add(headerSchema, e.SchemaRef)
		}
		if m.own, err = parseHeaders(m.own[:0], e.Headers); err != nil {
			return reject(CodeHeaders, "headers are not a flat JSON object of strings: repair the headers, then retry")
		}
		m.addOwn(from)
	}
	for _, h := range wrapped.Headers {
		m.replace(from, h)
	}
	into.Headers = m.headers[from:len(m.headers):len(m.headers)]
	if len(into.Key)+len(into.Value) > m.d.config.MaxRecordSize {
		return reject(CodeTooLarge, fmt.Sprintf("the record has %d bytes and max_record_size is %d: raise it and max.message.bytes "+
			"of the topic, then retry, or discard the event", len(into.Key)+len(into.Value), m.d.config.MaxRecordSize))
	}
	return nil
}

// topicOf is the Kafka topic for a topic_name.
func (d *Destination) topicOf(name string) string {
	if mapped, ok := d.config.Topics[name]; ok {
		return mapped
	}
	if d.config.Topic == placeholder {
		return name
	}
	return strings.ReplaceAll(d.config.Topic, placeholder, name)
}

func (m *composer) add(name, value string) {
	from := len(m.text)
	m.text = append(m.text, value...)
	m.headers = append(m.headers, kgo.RecordHeader{Key: name, Value: m.text[from:len(m.text):len(m.text)]})
}

func (m *composer) addNumber(name string, value int) {
	from := len(m.text)
	m.text = strconv.AppendInt(m.text, int64(value), 10)
	m.headers = append(m.headers, kgo.RecordHeader{Key: name, Value: m.text[from:len(m.text):len(m.text)]})
}

// addOwn adds the event's own headers behind those from a place on, but for names that stand there already.
func (m *composer) addOwn(from int) {
	to := len(m.headers)
	for _, h := range m.own {
		if indexOf(m.headers[from:to], h.Key) < 0 {
			m.headers = append(m.headers, h)
		}
	}
}

// replace puts a header of the envelope among those from a place on.
func (m *composer) replace(from int, h envelope.Header) {
	set := kgo.RecordHeader{Key: h.Name, Value: h.Value}
	if at := indexOf(m.headers[from:], h.Name); at >= 0 {
		m.headers[from+at] = set
		return
	}
	m.headers = append(m.headers, set)
}

func indexOf(headers []kgo.RecordHeader, name string) int {
	return slices.IndexFunc(headers, func(h kgo.RecordHeader) bool { return h.Key == name })
}

var errHeaders = errors.New("not a flat object of strings")

// parseHeaders reads a flat JSON object of strings in its own order. Of two with one name the last counts, in the first one's
// place.
func parseHeaders(into []kgo.RecordHeader, text []byte) ([]kgo.RecordHeader, error) {
	if len(text) == 0 || string(text) == "{}" || string(text) == "null" {
		return into, nil
	}
	if plain, ok := parsePlain(into, text); ok {
		return plain, nil
	}
	reader := json.NewDecoder(bytes.NewReader(text))
	if token, err := reader.Token(); err != nil || token != json.Delim('{') {
		return into, errHeaders
	}
	for reader.More() {
		name, err := reader.Token()
		if err != nil {
			return into, errHeaders
		}
		value, err := reader.Token()
		said, isText := value.(string)
		if err != nil || !isText {
			return into, errHeaders
		}
		into = putHeader(into, name.(string), []byte(said))
	}
	if token, err := reader.Token(); err != nil || token != json.Delim('}') {
		return into, errHeaders
	}
	if _, err := reader.Token(); !errors.Is(err, io.EOF) {
		return into, errHeaders
	}
	return into, nil
}

func putHeader(into []kgo.RecordHeader, name string, value []byte) []kgo.RecordHeader {
	if at := indexOf(into, name); at >= 0 {
		into[at].Value = value
		return into
	}
	return append(into, kgo.RecordHeader{Key: name, Value: value})
}

// parsePlain reads what most producers write, strings without escapes, without decoding anything. ok is false for all else, also
// for what is no JSON. The values are the text's own memory.
func parsePlain(into []kgo.RecordHeader, text []byte) (_ []kgo.RecordHeader, ok bool) {
	if !utf8.Valid(text) {
		return into, false
	}
	found := into
	at := 0
	next := func(want byte) bool {
		for at < len(text) && (text[at] == ' ' || text[at] == '\n' || text[at] == '\t' || text[at] == '\r') {
			at++
		}
		if at == len(text) || text[at] != want {
			return false
		}
		at++
		return true
	}
	word := func() ([]byte, bool) {
		if !next('"') {
			return nil, false
		}
		for from := at; at < len(text) && text[at] != '\\' && text[at] >= ' '; at++ {
			if text[at] == '"' {
				at++
				return text[from : at-1 : at-1], true
			}
		}
		return nil, false
	}
	if !next('{') {
		return into, false
	}
	for {
		name, ok := word()
		if !ok || !next(':') {
			return into, false
		}
		value, ok := word()
		if !ok {
			return into, false
		}
		found = putHeader(found, string(name), value)
		if next(',') {
			continue
		}
		if !next('}') {
			return into, false
		}
		return found, at == len(bytes.TrimRight(text, " \n\t\r"))
	}
}
