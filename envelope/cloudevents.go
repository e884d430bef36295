package envelope

import (
	"fmt"
	"maps"
	"mime"
	"net/url"
	"slices"
	"strconv"

	"github.com/pillarbox-dev/pillarbox/envelope/internal/jsontext"
	"github.com/pillarbox-dev/pillarbox/relay"
)

// CloudEvents are the options of the envelope cloudevents: CloudEvents 1.0 (https://github.com/cloudevents/spec, v1.0.2).
//
// The attributes are id (event_id), source, type (event_type), subject (aggregate_id), time (created_at), datacontenttype,
// dataschema, and as extensions partitionkey (partition_key), aggregatetype, aggregateversion (a string: the type Integer of
// CloudEvents has 32 bits), eventversion and schemaref. One that would be empty is left out.
//
// Structured mode is one JSON object, the payload byte for byte in data, or in data_base64 when it is not JSON; also for an
// event without a payload, as the bindings demand. In binary mode the value is the payload itself and the attributes are
// headers, ce_… in Kafka and ce-…, percent-encoded, in HTTP; an event without a payload has no value, which Kafka takes as a
// tombstone.
type CloudEvents struct {
	// Binary puts the attributes into headers. Default: structured, everything in the body.
	Binary bool
	// Source identifies the service that the events come from. Required: a URI reference, best an absolute URI.
	Source string
	// TypePrefix goes before event_type, like com.example. with its dot.
	TypePrefix string
	// SchemaBase makes the attribute dataschema: an absolute URI that schema_ref is appended to. Default: no dataschema.
	SchemaBase string
	// BinaryType is the media type of payloads that are not JSON. Default application/octet-stream.
	BinaryType string
	// Extensions are further attributes, by name (a–z and 0–9, at most 20), and the event header that each is taken from.
	Extensions map[string]string
}

// reservedAttributes are those that the envelope writes itself, and data, which is none.
var reservedAttributes = []string{
	"specversion", "id", "source", "type", "subject", "time", "datacontenttype", "dataschema", "data", "database64",
	"partitionkey", "aggregatetype", "aggregateversion", "eventversion", "schemaref",
}

const typeCloudEvent = "application/cloudevents+json; charset=UTF-8"

func (c *CloudEvents) problems() (problems []error) {
	const example = "https://example.com/cases or /cases"
	wrong := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if c.Source == "" {
		wrong("cloudevents.source is missing: name the service that the events come from, like %s", example)
	} else if _, err := url.Parse(c.Source); err != nil || attributeFault(c.Source) != "" || !isVisible(c.Source) {
		wrong("cloudevents.source %q is no URI reference: write it like %s", c.Source, example)
	}
	if fault := attributeFault(c.TypePrefix); fault != "" {
		wrong("cloudevents.type_prefix %q %s: write it like com.example.", c.TypePrefix, fault)
	}
	if base, err := url.Parse(c.SchemaBase); c.SchemaBase != "" && (err != nil || !base.IsAbs() || !isVisible(c.SchemaBase)) {
		wrong("cloudevents.schema_base %q is no absolute URI: write it like https://schemas.example.com/", c.SchemaBase)
	}
	if c.BinaryType != "" && !isMediaType(c.BinaryType) {
		wrong("cloudevents.binary_type %q is no media type: write it like application/avro", c.BinaryType)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Extensions)) {
		switch {
		case !isAttributeName(name):
			wrong("cloudevents.extensions: %q is no name of an attribute: use 1 to 20 of a–z and 0–9", name)
		case slices.Contains(reservedAttributes, name):
			wrong("cloudevents.extensions: %s is taken: choose another name", name)
		case c.Extensions[name] == "":
			wrong("cloudevents.extensions: %s names no header: write the name of the event header that it is taken from", name)
		}
	}
	return problems
}

func isAttributeName(name string) bool {
	for _, c := range []byte(name) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return name != "" && len(name) <= 20
}

// isMediaType tells whether a text can stand in Content-Type.
func isMediaType(text string) bool {
	_, _, err := mime.ParseMediaType(text)
	return err == nil && attributeFault(text) == ""
}

type cloudEvents struct {
	CloudEvents
	target      Target
	extensions  []string          // names in order
	headerNames map[string]string // by attribute
}

func newCloudEvents(c *Config) (Envelope, []error) {
	made := &cloudEvents{target: c.Target}
	if c.CloudEvents != nil {
		made.CloudEvents = *c.CloudEvents
	}
	if problems := made.problems(); len(problems) > 0 {
		return nil, problems
	}
	if made.BinaryType == "" {
		made.BinaryType = typeBinary
	}
	made.extensions = slices.Sorted(maps.Keys(made.Extensions))
	prefix := "ce_"
	if c.Target == HTTP {
		prefix = "ce-"
	}
	made.headerNames = map[string]string{}
	for _, name := range slices.Concat(reservedAttributes, made.extensions) {
		made.headerNames[name] = prefix + name
	}
	return made, nil
}

// attribute is a context attribute; number is set for the type Integer.
type attribute struct {
	name, value string
	number      bool
}

func (c *cloudEvents) Wrap(e *relay.Event) (Message, error) {
	attributes, err := c.attributes(e)
	if err != nil {
		return Message{}, err
	}
	if c.Binary {
		return c.binary(e, attributes), nil
	}
	return c.structured(e, attributes)
}

// attributes returns all but datacontenttype, which the binary mode does not send as an attribute.
func (c *cloudEvents) attributes(e *relay.Event) ([]attribute, error) {
	if e.ID == "" || e.Type == "" {
		return nil, invalid(replaceEvent, "event_id or event_type is empty, and a CloudEvent needs both")
	}
	all := make([]attribute, 0, 12+len(c.extensions))
	add := func(name, value string) {
		if value != "" {
			all = append(all, attribute{name: name, value: value})
		}
	}
	add("specversion", "1.0")
	add("id", e.ID)
	add("source", c.Source)
	add("type", c.TypePrefix+e.Type)
	add("subject", e.AggregateID)
	add("time", string(jsontext.AppendTime(nil, e.CreatedAt)))
	if c.SchemaBase != "" && e.SchemaRef != "" {
		add("dataschema", c.SchemaBase+(&url.URL{Path: e.SchemaRef}).EscapedPath())
	}
	add("partitionkey", e.Key)
	add("aggregatetype", e.AggregateType)
	if e.AggregateVersion != 0 {
		add("aggregateversion", strconv.FormatInt(e.AggregateVersion, 10))
	}
	all = append(all, attribute{"eventversion", strconv.Itoa(e.Version), true})
	add("schemaref", e.SchemaRef)
	if len(c.extensions) > 0 {
		own, err := headersOf(e)
		if err != nil {
			return nil, err
		}
		for _, name := range c.extensions {
			add(name, own[c.Extensions[name]])
		}
	}
	for _, a := range all {
		if fault := attributeFault(a.value); fault != "" {
			return nil, invalid(replaceEvent, "the attribute %s %s, which CloudEvents does not allow", a.name, fault)
		}
	}
	return all, nil
}

func (c *cloudEvents) dataType(e *relay.Event) string {
	switch {
	case e.Payload == nil:
		return ""
	case e.Binary:
		return c.BinaryType
	}
	return typeJSON
}

func (c *cloudEvents) structured(e *relay.Event, attributes []attribute) (Message, error) {
	size := embeddedSize(e) + 128
	for _, a := range attributes {
		size += len(a.name) + len(a.value) + 6
	}
	o := jsontext.NewObject(size)
	for _, a := range attributes {
		if a.number {
			o.Raw(a.name, []byte(a.value))
		} else {
			o.String(a.name, a.value)
		}
	}
	if dataType := c.dataType(e); dataType != "" {
		o.String("datacontenttype", dataType)
	}
	switch {
	case e.Payload == nil:
	case e.Binary:
		o.Base64("data_base64", e.Payload)
	default:
		if err := checkJSON(e.Payload); err != nil {
			return Message{}, err
		}
		o.Raw("data", e.Payload)
	}
	m := Message{Key: laneKey(e), Value: o.Close(), ContentType: typeCloudEvent, Time: e.CreatedAt}
	if c.target == Kafka {
		m.Headers = []Header{{"content-type", []byte(typeCloudEvent)}}
	}
	return m, nil
}

func (c *cloudEvents) binary(e *relay.Event, attributes []attribute) Message {
	m := Message{Key: laneKey(e), Value: e.Payload, ContentType: c.dataType(e), Time: e.CreatedAt}
	m.Headers = make([]Header, 0, len(attributes)+1)
	size := 0
	for _, a := range attributes {
		size += len(a.value)
	}
	values := make([]byte, 0, size+size/4) // of all headers; one that is escaped may need more
	for _, a := range attributes {
		from := len(values)
		if c.target == HTTP {
			values = appendEscaped(values, a.value)
		} else {
			values = append(values, a.value...)
		}
		m.Headers = append(m.Headers, Header{c.headerNames[a.name], values[from:len(values):len(values)]})
	}
	if c.target == Kafka && m.ContentType != "" {
		m.Headers = append(m.Headers, Header{"content-type", []byte(m.ContentType)})
	}
	return m
}
