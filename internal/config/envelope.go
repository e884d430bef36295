package config

import (
	"reflect"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/pillarbox-dev/pillarbox/envelope"
)

// Envelope says what is sent of an event. See envelope.Config.
type Envelope struct {
	Name           string       `yaml:"name" rule:"required" hint:"name one: payload, envelope, cloudevents, jq or debezium" oneof:"payload,envelope,cloudevents,jq,debezium"`
	Producer       string       `yaml:"producer,omitempty"`
	WrapTombstones bool         `yaml:"wrap_tombstones,omitempty"`
	CloudEvents    *CloudEvents `yaml:"cloudevents,omitempty"`
	JQ             *JQ          `yaml:"jq,omitempty"`
	Debezium       *Debezium    `yaml:"debezium,omitempty"`
}

// CloudEvents are the options of the envelope of that name. See envelope.CloudEvents.
type CloudEvents struct {
	Mode       string            `yaml:"mode,omitempty" oneof:"structured,binary"`
	Source     string            `yaml:"source,omitempty"`
	TypePrefix string            `yaml:"type_prefix,omitempty"`
	SchemaBase string            `yaml:"schema_base,omitempty"`
	BinaryType string            `yaml:"binary_type,omitempty"`
	Extensions map[string]string `yaml:"extensions,omitempty"`
}

// JQ are the options of the envelope of that name. See envelope.JQ.
type JQ struct {
	Expression  Verbatim `yaml:"expression,omitempty"`
	Timeout     Duration `yaml:"timeout,omitempty"`
	ContentType string   `yaml:"content_type,omitempty"`
}

// Debezium are the options of the envelope of that name. See envelope.Debezium.
type Debezium struct {
	Format           string `yaml:"format,omitempty" oneof:"text,json,json-schema,binary"`
	KeyFormat        string `yaml:"key_format,omitempty" oneof:"text,json,json-schema"`
	ExpandPayload    bool   `yaml:"expand_payload,omitempty"`
	TombstoneOnEmpty bool   `yaml:"tombstone_on_empty,omitempty"`
	KeyColumn        string `yaml:"key_column,omitempty"`
	RouteColumn      string `yaml:"route_column,omitempty"`
	Topic            string `yaml:"topic,omitempty"`
	Placement        string `yaml:"placement,omitempty"`
	EventTime        bool   `yaml:"event_time,omitempty"`
}

// Verbatim is text that is taken as it stands: it may have several lines, and no variables are filled in.
type Verbatim string

func (v *Verbatim) decodeNode(d *decoder, n *yaml.Node, path string, _ reflect.StructTag) {
	switch {
	case n.Kind != yaml.ScalarNode || n.Tag != "!!str":
		d.wrongType(n, path, "text")
	case strings.TrimSpace(n.Value) == "":
		d.problem(n, path, path+" is empty", "give it a value, or take the key out")
	default:
		*v = Verbatim(n.Value)
	}
}

// config returns the settings of the envelope; nil is the payload as it is.
func (e *Envelope) config(target envelope.Target) envelope.Config {
	if e == nil {
		return envelope.Config{Target: target}
	}
	c := envelope.Config{Name: e.Name, Target: target, Producer: e.Producer, WrapTombstones: e.WrapTombstones}
	if o := e.CloudEvents; o != nil {
		c.CloudEvents = &envelope.CloudEvents{
			Binary: o.Mode == "binary", Source: o.Source, TypePrefix: o.TypePrefix, SchemaBase: o.SchemaBase, BinaryType: o.BinaryType,
			Extensions: o.Extensions,
		}
	}
	if o := e.JQ; o != nil {
		c.JQ = &envelope.JQ{Expression: string(o.Expression), Timeout: time.Duration(o.Timeout), ContentType: o.ContentType}
	}
	if o := e.Debezium; o != nil {
		c.Debezium = &envelope.Debezium{
			Format: envelope.Format(o.Format), KeyFormat: envelope.Format(o.KeyFormat), ExpandPayload: o.ExpandPayload,
			TombstoneOnEmpty: o.TombstoneOnEmpty, KeyColumn: o.KeyColumn, RouteColumn: o.RouteColumn, Topic: o.Topic,
			Placement: o.Placement, EventTime: o.EventTime,
		}
	}
	return c
}

// checkEnvelope asks the envelope what it holds of its settings. Its messages begin with the name of a setting.
func (d *decoder) checkEnvelope(path string, e *Envelope, target envelope.Target) {
	if e == nil || d.failedBelow(path) {
		return
	}
	if _, err := envelope.New(e.config(target)); err != nil {
		d.wrongWithin(path, err)
	}
}

// wrongWithin notes the problems of an error, each with the key that its message begins with.
func (d *decoder) wrongWithin(path string, err error) {
	for _, problem := range Each(err) {
		text := problem.Error()
		words := strings.FieldsFunc(text, func(r rune) bool { return r == ' ' || r == ':' })
		at := join(path, words[0])
		if _, known := d.places[at]; !known {
			at = path
		}
		d.wrong(at, path+": "+text, "")
	}
}
