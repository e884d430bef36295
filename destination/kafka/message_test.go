package kafka

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pillarbox-dev/pillarbox/envelope"
	"github.com/pillarbox-dev/pillarbox/relay"
)

func TestParseHeaders(t *testing.T) {
	type pair = [2]string
	for _, test := range []struct {
		text string
		want []pair
		bad  bool
	}{
		{text: ``}, {text: `{}`}, {text: `{ }`}, {text: `null`},
		{text: `{"b":"1","a":"2"}`, want: []pair{{"b", "1"}, {"a", "2"}}},
		{text: " {\n\"a\" : \"x\" ,\t\"b\":\"\" } \n", want: []pair{{"a", "x"}, {"b", ""}}},
		{text: `{"a":"1","b":"2","a":"3"}`, want: []pair{{"a", "3"}, {"b", "2"}}},
		{text: `{"ü":"grün 🙂"}`, want: []pair{{"ü", "grün 🙂"}}},
		{text: `{"a\n":"\u00fc\"\\","b":"2"}`, want: []pair{{"a\n", `ü"\`}, {"b", "2"}}},
		{text: `{"a":"}"}`, want: []pair{{"a", "}"}}},
		{text: `[]`, bad: true}, {text: `"x"`, bad: true}, {text: `{"a":1}`, bad: true}, {text: `{"a":{"b":"c"}}`, bad: true},
		{text: `{"a":null}`, bad: true}, {text: `{"a":"b"`, bad: true}, {text: `{"a":"b",}`, bad: true}, {text: `{"a"}`, bad: true},
		{text: `{"a":"b"}x`, bad: true}, {text: `{"a":"b\"}`, bad: true}, {text: `{a:"b"}`, bad: true},
	} {
		got, err := parseHeaders(nil, []byte(test.text))
		if (err != nil) != test.bad {
			t.Errorf("%s: error %v, want one: %v", test.text, err, test.bad)
			continue
		}
		var pairs []pair
		for _, h := range got {
			pairs = append(pairs, pair{h.Key, string(h.Value)})
		}
		if !test.bad && !slices.Equal(pairs, test.want) {
			t.Errorf("%s: got %q, want %q", test.text, pairs, test.want)
		}
	}
}

// Whatever is read is what encoding/json makes of it.
func FuzzParseHeaders(f *testing.F) {
	for _, seed := range []string{`{"a":"b"}`, `{"a":"b","a":"c"}`, `{"a":"\ud800"}`, `{ "a" : "b" }`, `{"a":"b"}{}`, "{\"a\":\"\xff\"}"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var want map[string]string
		wantErr := json.Unmarshal(text, &want)
		if wantErr == nil {
			var raw map[string]any
			_ = json.Unmarshal(text, &raw)
			for _, value := range raw {
				if value == nil {
					return // encoding/json takes null for ""
				}
			}
		}
		got, err := parseHeaders(nil, text)
		if wantErr == nil && err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if wantErr != nil || err != nil {
			return
		}
		found := map[string]string{}
		for _, h := range got {
			found[h.Key] = string(h.Value)
		}
		if !maps.Equal(found, want) {
			t.Errorf("%q: got %q, want %q", text, found, want)
		}
	})
}

// wrapper is an envelope of the test's own.
type wrapper envelope.Message

func (w wrapper) Wrap(*relay.Event) (envelope.Message, error) { return envelope.Message(w), nil }

func TestHeadersOfTheEnvelopeWin(t *testing.T) {
	event := relay.Event{
		ID: "id", Type: "T", Version: 2, SchemaRef: "s", Topic: "t", Headers: []byte(`{"eventId":"false","own":"1","x":"2"}`),
	}
	for _, test := range []struct {
		name     string
		envelope wrapper
		want     []kgo.RecordHeader
	}{
		{"none", wrapper{}, []kgo.RecordHeader{
			{Key: "eventId", Value: []byte("id")}, {Key: "eventType", Value: []byte("T")}, {Key: "eventVersion", Value: []byte("2")},
			{Key: "schemaRef", Value: []byte("s")}, {Key: "own", Value: []byte("1")}, {Key: "x", Value: []byte("2")}}},
		{"some", wrapper{Headers: []envelope.Header{{Name: "x", Value: nil}, {Name: "ce_id", Value: []byte("id")}}}, []kgo.RecordHeader{
			{Key: "eventId", Value: []byte("id")}, {Key: "eventType", Value: []byte("T")}, {Key: "eventVersion", Value: []byte("2")},
			{Key: "schemaRef", Value: []byte("s")}, {Key: "own", Value: []byte("1")}, {Key: "x"}, {Key: "ce_id", Value: []byte("id")}}},
		{"all", wrapper{Complete: true, Headers: []envelope.Header{{Name: "id", Value: []byte("id")}}}, []kgo.RecordHeader{
			{Key: "id", Value: []byte("id")}}},
	} {
		d := newDestination(t, []string{"127.0.0.1:1"}, func(c *Config) { c.Envelope = test.envelope })
		var record kgo.Record
		if out := newComposer(d, 1).compose(&event, &record); out != nil {
			t.Fatalf("%s: %+v", test.name, out)
		}
		same := func(a, b kgo.RecordHeader) bool {
			return a.Key == b.Key && string(a.Value) == string(b.Value) && (a.Value == nil) == (b.Value == nil)
		}
		if !slices.EqualFunc(record.Headers, test.want, same) {
			t.Errorf("%s: got %q, want %q", test.name, record.Headers, test.want)
		}
	}
}

func TestTopicOf(t *testing.T) {
	for _, test := range []struct {
		topic  string
		topics map[string]string
		want   string
	}{
		{"", nil, "orders"},
		{"all", nil, "all"},
		{"prod.{topic}.v1", nil, "prod.orders.v1"},
		{"prod.{topic}", map[string]string{"orders": "o", "cases": "c"}, "o"},
	} {
		d := newDestination(t, []string{"127.0.0.1:1"}, func(c *Config) { c.Topic, c.Topics = test.topic, test.topics })
		if got := d.topicOf("orders"); got != test.want {
			t.Errorf("topic %q, topics %v: got %q, want %q", test.topic, test.topics, got, test.want)
		}
	}
}
