package envelope

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/pillarbox-dev/pillarbox/envelope/internal/jsontext"
	"github.com/pillarbox-dev/pillarbox/relay"
)

// Debezium are the options of the envelope debezium: the record that the outbox event router of Debezium 3.6 writes. Each names
// the setting of Debezium that it stands for; the defaults are Debezium's. The test compares with records that Debezium wrote.
//
// The key is aggregate_id, the header id is event_id, and no other header is sent but those of Placement. The lanes keep the
// order of partition_key: give events the same partition_key when they have the same key here.
//
// Where Debezium's result is a fault, ours differs, and only with ExpandPayload:
//
//   - Numbers keep their digits. Debezium writes 1e3 as 1000.0, 1.10 as 1.1 and 1e400 as "Infinity", and an integer that
//     does not fit into 64 bits stops its connector.
//   - Arrays are arrays, whatever is in them. Debezium sends a payload with an array of mixed types as one escaped string, leaves
//     empty arrays out, and adds null members to objects in arrays so that all have the same.
//   - A payload that is no object (a string, a number, an array, null) is that JSON value. Debezium sends it as an escaped
//     string, or stops.
//   - Members that are null stay. Debezium leaves them out. Of two members with one name it keeps the last; ours keeps both.
type Debezium struct {
	// Format is how the value is written. Default FormatText.
	Format Format
	// KeyFormat is how the key is written: FormatText, FormatJSON or FormatJSONSchema. Default FormatText.
	KeyFormat Format
	// ExpandPayload, with FormatJSON, sends the payload as JSON and not as a string that holds JSON: table.expand.json.payload.
	ExpandPayload bool
	// TombstoneOnEmpty, with a JSON format, sends an event without a payload as no value at all:
	// route.tombstone.on.empty.payload.
	TombstoneOnEmpty bool
	// KeyColumn is the column of text that makes the key: table.field.event.key. Default aggregate_id.
	KeyColumn string
	// RouteColumn is the column of text that names the topic: route.by.field. Default aggregate_type.
	RouteColumn string
	// Topic is where it goes: route.topic.replacement. Default outbox.event.${routedByValue}.
	Topic string
	// Placement adds columns as headers or to the value: table.fields.additional.placement, a list like
	// "headers.tenant:header:tenantId,aggregate_version:envelope:version,event_type:header". A column is one of outbox_event,
	// or a header of the event: headers.NAME, null when it has none; number(headers.NAME) is a number in the value. In the value
	// (envelope) columns need FormatJSON.
	Placement string
	// EventTime makes created_at the record's timestamp: table.field.event.timestamp. Default: the time of publishing.
	EventTime bool
}

// Format says with which converter of Kafka Connect the bytes agree.
type Format string

const (
	FormatText       Format = "text"        // StringConverter: the payload's bytes as they are
	FormatJSON       Format = "json"        // JsonConverter without schemas
	FormatJSONSchema Format = "json-schema" // JsonConverter with schemas, the default of Kafka Connect
	FormatBinary     Format = "binary"      // BinaryDataConverter: the payload's bytes as they are, JSON or not
)

// routedByValue stands in Topic for what RouteColumn says.
const routedByValue = "${routedByValue}"

func (d Debezium) withDefaults() Debezium {
	for _, option := range []struct {
		value    *string
		fallback string
	}{
		{(*string)(&d.Format), string(FormatText)}, {(*string)(&d.KeyFormat), string(FormatText)}, {&d.KeyColumn,
			"aggregate_id"},
		{&d.RouteColumn, "aggregate_type"}, {&d.Topic, "outbox.event." + routedByValue},
	} {
		if *option.value == "" {
			*option.value = option.fallback
		}
	}
	return d
}

type debezium struct {
	Debezium
	key, route column
	headers    []placed
	members    []placed // in the value, after the payload
	ownHeaders bool     // some placed column is a header of the event
}

func newDebezium(c *Config) (Envelope, []error) {
	d := &debezium{}
	if c.Debezium != nil {
		d.Debezium = *c.Debezium
	}
	d.Debezium = d.withDefaults()
	var problems, more []error
	if c.Target == HTTP {
		problems = append(problems, errors.New("debezium makes records of Kafka: choose cloudevents or envelope for HTTP"))
	}
	d.headers, d.members, more = parsePlacement(d.Placement)
	problems = append(append(problems, more...), d.problems()...)
	for _, choice := range []struct {
		option, name string
		into         *column
	}{{"key_column", d.KeyColumn, &d.key}, {"route_column", d.RouteColumn, &d.route}} {
		if *choice.into, _ = findColumn(choice.name); choice.into.text == nil {
			problems = append(problems, fmt.Errorf("debezium.%s is %q: it must be one of %s",
				choice.option, choice.name, strings.Join(columnNames(true), ", ")))
		}
	}
	for _, p := range slices.Concat(d.headers, d.members) {
		d.ownHeaders = d.ownHeaders || p.header != ""
	}
	return d, problems
}

// problems are those of the formats and of what needs one of them.
func (d *debezium) problems() (problems []error) {
	wrong := func(format string, args ...any) { problems = append(problems, fmt.Errorf("debezium."+format, args...)) }
	isJSON := d.Format == FormatJSON || d.Format == FormatJSONSchema
	if !isJSON && d.Format != FormatText && d.Format != FormatBinary {
		wrong("format is %q: it must be text, json, json-schema or binary", d.Format)
	}
	if d.KeyFormat != FormatText && d.KeyFormat != FormatJSON && d.KeyFormat != FormatJSONSchema {
		wrong("key_format is %q: it must be text, json or json-schema", d.KeyFormat)
	}
	if d.ExpandPayload && d.Format != FormatJSON {
		wrong("expand_payload needs format json, and it is %s", d.Format)
	}
	if d.TombstoneOnEmpty && !isJSON {
		wrong("tombstone_on_empty is for the JSON formats: with %s an event without a payload has no value anyway", d.Format)
	}
	if len(d.members) > 0 && d.Format != FormatJSON {
		wrong("placement puts columns into the value, which needs format json, and it is %s", d.Format)
	}
	return problems
}

func (d *debezium) Wrap(e *relay.Event) (Message, error) {
	if err := checkTexts(e); err != nil {
		return Message{}, err
	}
	var own map[string]string
	var err error
	if d.ownHeaders {
		if own, err = headersOf(e); err != nil {
			return Message{}, err
		}
	}
	m := Message{Key: d.keyOf(e), Headers: d.headersFor(e, own), Complete: true}
	if m.Topic, err = d.topicOf(e); err != nil {
		return Message{}, err
	}
	if m.Value, err = d.value(e, own); err != nil {
		return Message{}, err
	}
	switch {
	case m.Value == nil:
	case d.Format == FormatBinary && e.Binary:
		m.ContentType = typeBinary
	default:
		m.ContentType = typeJSON
	}
	if d.EventTime {
		m.Time = e.CreatedAt
	}
	return m, nil
}

func (d *debezium) topicOf(e *relay.Event) (string, error) {
	if !strings.Contains(d.Topic, routedByValue) {
		return d.Topic, nil
	}
	value := d.route.text(e)
	if value == "" {
		return "", invalid(replaceEvent, "%s is empty, and it names the topic", d.RouteColumn)
	}
	return strings.ReplaceAll(d.Topic, routedByValue, value), nil
}

func (d *debezium) headersFor(e *relay.Event, own map[string]string) []Header {
	headers := append(make([]Header, 0, 1+len(d.headers)), Header{"id", []byte(e.ID)})
	for _, p := range d.headers {
		headers = append(headers, Header{p.alias, p.bytes(e, own)})
	}
	return headers
}

// What JsonConverter writes around a key and a value. The schemas are those of the columns.
const (
	keySchema    = `{"schema":{"type":"string","optional":false},"payload":`
	jsonSchema   = `{"schema":{"type":"string","optional":true,"name":"io.debezium.data.Json","version":1},"payload":`
	binarySchema = `{"schema":{"type":"bytes","optional":true},"payload":`
)

func (d *debezium) keyOf(e *relay.Event) []byte {
	key := d.key.text(e)
	switch d.KeyFormat {
	case FormatJSON:
		return jsontext.AppendStringPairs(nil, key)
	case FormatJSONSchema:
		return append(jsontext.AppendStringPairs(append(make([]byte, 0, len(keySchema)+len(key)+8), keySchema...), key), '}')
	}
	return append([]byte{}, key...) // an empty key is one
}

func (d *debezium) value(e *relay.Event, own map[string]string) ([]byte, error) {
	switch {
	case d.Format == FormatBinary:
		return e.Payload, nil
	case d.Format == FormatText && e.Binary && e.Payload != nil:
		return nil, invalid("discard the event, or set debezium.format to binary", "the payload is not text")
	case d.Format == FormatText:
		return e.Payload, nil
	case e.Payload == nil && d.TombstoneOnEmpty:
		return nil, nil
	}
	text := make([]byte, 0, len(jsonSchema)+embeddedSize(e)*9/8+64)
	if d.Format == FormatJSONSchema {
		schema := jsonSchema
		if e.Binary {
			schema = binarySchema
		}
		text, err := d.appendPayload(append(text, schema...), e)
		return append(text, '}'), err
	}
	if len(d.members) == 0 {
		return d.appendPayload(text, e)
	}
	text, err := d.appendPayload(append(text, `{"payload":`...), e)
	if err != nil {
		return nil, err
	}
	for _, p := range d.members {
		text = append(jsontext.AppendStringPairs(append(text, ','), p.alias), ':')
		if text, err = p.appendJSON(text, e, own); err != nil {
			return nil, err
		}
	}
	return append(text, '}'), nil
}

// appendPayload appends the payload as a JSON value.
func (d *debezium) appendPayload(dst []byte, e *relay.Event) ([]byte, error) {
	switch {
	case e.Payload == nil:
		return append(dst, "null"...), nil
	case e.Binary:
		return jsontext.AppendBase64(dst, e.Payload), nil
	}
	if err := checkJSON(e.Payload); err != nil {
		return nil, err
	}
	if d.ExpandPayload {
		return appendExpanded(dst, e.Payload), nil
	}
	return jsontext.AppendStringPairs(dst, e.Payload), nil
}

// appendExpanded appends valid JSON as Debezium writes it: without white space, and with strings escaped as Jackson escapes them.
func appendExpanded(dst, text []byte) []byte {
	for i := 0; i < len(text); {
		switch c := text[i]; {
		case jsontext.IsSpace(c):
			i++
		case c == '"':
			n := jsontext.StringLen(text[i:])
			dst = appendString(dst, text[i:i+n])
			i += n
		default:
			dst = append(dst, c)
			i++
		}
	}
	return dst
}

// appendString leaves a string with half a pair of surrogates as it is: there is no other way to write it.
func appendString(dst, text []byte) []byte {
	if bytes.IndexByte(text, '\\') < 0 {
		return jsontext.AppendStringPairs(dst, text[1:len(text)-1])
	}
	said := jsontext.Unquote(text)
	if strings.Contains(said, "\uFFFD") {
		return append(dst, text...)
	}
	return jsontext.AppendStringPairs(dst, said)
}
