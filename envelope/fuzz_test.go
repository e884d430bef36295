package envelope

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/pillarbox-dev/pillarbox/envelope/internal/jsontext"
	"github.com/pillarbox-dev/pillarbox/relay"
)

// Whatever an event holds: nothing panics; what comes out is valid JSON that has the payload's bytes in it, or a reject.
func FuzzWrap(f *testing.F) {
	f.Add([]byte(`{"z":12345678901234567890,"a":1.0,"e":1e3}`), []byte(`{"n":"1","t":"00-ab"}`), "0197-1", "CASE-1", "żółć 😀",
		false)
	f.Add([]byte(` [1,{"b":[null, -0 ]},"\ud800"] `), []byte(`{}`), "", "", "a\nb", false)
	f.Add([]byte("\x00\xff"), []byte(`{"n":1}`), "1", "\xff", "%\"", true)
	f.Add([]byte("nul"), []byte(``), "1", "k", "t", false)
	f.Add([]byte(`{"a":1,"a":[]}`), []byte(`{"n":"x","n":"2"}`), "1", "k", "t", false)
	type made struct {
		Envelope
		name  string
		exact bool // the payload's bytes are in the value
	}
	all := []made{
		{newEnvelope(f, Config{Target: Kafka}), "payload", true},
		{newEnvelope(f, Config{Name: NameEnvelope, Target: HTTP, Producer: "cases"}), "envelope", true},
		{newEnvelope(f, cloudEvent(HTTP, false)), "structured", true},
		{newEnvelope(f, cloudEvent(HTTP, true)), "binary over HTTP", true},
		{newEnvelope(f, cloudEvent(Kafka, true)), "binary over Kafka", true},
		{newEnvelope(f,
			Config{Name: NameJQ, Target: HTTP,
				JQ: &JQ{Expression: "{payload, payloadBase64, k: .partitionKey, h: .headers}"}}), "jq", true},
		{newEnvelope(f, Config{Name: NameDebezium, Target: Kafka, Debezium: &Debezium{Format: FormatJSONSchema,
			KeyFormat: FormatJSON}}), "debezium with schema", false},
		{newEnvelope(f, Config{Name: NameDebezium, Target: Kafka, Debezium: &Debezium{Format: FormatJSON, ExpandPayload: true,
			Placement: "headers.t:header,number(headers.n):envelope:n,event_type:envelope"}}), "debezium expanded", false},
	}
	f.Fuzz(func(t *testing.T, payload, headers []byte, id, key, text string, binary bool) {
		e := &relay.Event{ID: id, Topic: text, Key: key, AggregateType: text, AggregateID: key,
			AggregateVersion: 9007199254740993, Type: text,
			Version: 1, SchemaRef: text, Payload: payload, Binary: binary, Headers: headers, CreatedAt: created}
		before := bytes.Clone(payload)
		for _, m := range all {
			got, err := m.Wrap(e)
			if !bytes.Equal(e.Payload, before) {
				t.Fatalf("%s changed the payload", m.name)
			}
			if err != nil {
				var invalid *InvalidError
				if !errors.As(err, &invalid) || got.Value != nil {
					t.Fatalf("%s: value %q, error %v, want an *InvalidError alone", m.name, got.Value, err)
				}
				continue
			}
			checkHeaders(t, m.name, got)
			if strings.HasPrefix(got.ContentType, "application/json") && m.name != "payload" &&
				!strings.HasPrefix(m.name, "binary") ||
				strings.HasPrefix(got.ContentType, "application/cloudevents+json") {
				if err := jsontext.Check(got.Value); err != nil {
					t.Fatalf("%s: %v: %q", m.name, err, got.Value)
				}
			}
			if m.exact && !binary && !bytes.Contains(got.Value, trimmed(payload)) {
				t.Fatalf("%s: %q is not in %q", m.name, payload, got.Value)
			}
			if m.name == "debezium expanded" && !binary {
				sameTokens(t, payload, got.Value)
			}
		}
	})
}

// trimmed: jq does not see the white space around the payload, and may escape a string that is all of it anew.
func trimmed(payload []byte) []byte {
	payload = bytes.Trim(payload, " \n\t\r")
	if bytes.HasPrefix(payload, []byte(`"`)) {
		return nil
	}
	return payload
}

// checkHeaders: names and values fit their target.
func checkHeaders(t *testing.T, name string, m Message) {
	t.Helper()
	for _, h := range m.Headers {
		if h.Name == "" || !isToken(h.Name) {
			t.Fatalf("%s: a header of the name %q", name, h.Name)
		}
		if name == "binary over HTTP" && strings.IndexFunc(string(h.Value),
			func(r rune) bool { return r <= ' ' || r > '~' }) >= 0 {
			t.Fatalf("%s: the header %s has %q", name, h.Name, h.Value)
		}
	}
}

func isToken(name string) bool {
	return strings.IndexFunc(name, func(r rune) bool {
		return r <= ' ' || r > '~' ||
			strings.ContainsRune(`()<>@,;:\"/[]?={}`, r)
	}) < 0
}

// sameTokens: the expanded payload has the same tokens in the same order; numbers to the letter, strings by what they say.
func sameTokens(t *testing.T, payload, value []byte) {
	t.Helper()
	const head = `{"payload":`
	got, want := tokens(value[len(head):]), tokens(payload)
	if len(got) < len(want) || !reflect.DeepEqual(got[:len(want)], want) {
		t.Fatalf("%q\nis not %q", value, payload)
	}
}

func tokens(text []byte) (all []string) {
	for i := 0; i < len(text); {
		switch c := text[i]; {
		case jsontext.IsSpace(c):
			i++
		case c == '"':
			n := jsontext.StringLen(text[i:])
			all = append(all, `"`+jsontext.Unquote(text[i:i+n]))
			i += n
		case strings.IndexByte("{}[],:", c) >= 0:
			all = append(all, string(c))
			i++
		default:
			n := bytes.IndexAny(text[i:], "{}[],: \n\t\r")
			if n < 0 {
				n = len(text) - i
			}
			all = append(all, string(text[i:i+n]))
			i += n
		}
	}
	return all
}
