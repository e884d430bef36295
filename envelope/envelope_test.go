package envelope

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/relay"
)

var (
	created   = time.Date(2026, 7, 3, 4, 20, 13, 123_456_000, time.FixedZone("", 2*60*60))
	published = time.Date(2026, 7, 3, 2, 20, 14, 0, time.UTC)
)

func newEnvelope(t testing.TB, c Config) Envelope {
	t.Helper()
	c.Now = func() time.Time { return published }
	made, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func wrap(t testing.TB, c Config, e *relay.Event) Message {
	t.Helper()
	m, err := newEnvelope(t, c).Wrap(e)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// newEvent has what a parser of numbers, or one that sorts members, would change.
func newEvent(change ...func(*relay.Event)) *relay.Event {
	e := &relay.Event{
		Seq: 7, ID: "0197-1", Topic: "cases", Key: "CASE-1", AggregateType: "case", AggregateID: "CASE-1",
		AggregateVersion: 9007199254740993,
		Type:             "CaseAccepted", Version: 2, SchemaRef: "reg.case.CaseAccepted.v2", CreatedAt: created,
		Payload: []byte(`{"z": 12345678901234567890, "a":1.0,"e":1e3 ,"u":"\u00e9\/ż", "a":null}`),
		Headers: []byte(`{"correlationId":"c 1","traceparent":"00-ab"}`),
	}
	for _, c := range change {
		c(e)
	}
	return e
}

func without(e *relay.Event)  { e.Payload = nil }
func emptyOne(e *relay.Event) { e.Payload, e.Binary = []byte{}, true }
func binary(e *relay.Event)   { e.Payload, e.Binary = []byte{0, 0xFF, '"'}, true }
func keyless(e *relay.Event)  { e.Key = "" }

func payloadIs(text string) func(*relay.Event) {
	return func(e *relay.Event) { e.Payload = []byte(text) }
}

// same compares everything but the headers.
func same(t *testing.T, got, want Message) {
	t.Helper()
	if got.Topic != want.Topic || got.ContentType != want.ContentType || got.Complete != want.Complete ||
		!got.Time.Equal(want.Time) {
		t.Errorf("topic %q, type %q, complete %v, time %v\nwant  %q, type %q, complete %v, time %v",
			got.Topic, got.ContentType, got.Complete, got.Time, want.Topic, want.ContentType, want.Complete, want.Time)
	}
	if show(got.Key) != show(want.Key) {
		t.Errorf("key %s, want %s", show(got.Key), show(want.Key))
	}
	if show(got.Value) != show(want.Value) {
		t.Errorf("value %s\nwant  %s", got.Value, want.Value)
	}
}

func TestPayload(t *testing.T) {
	for _, target := range []Target{Kafka, HTTP} {
		for _, tt := range []struct {
			name  string
			event *relay.Event
			want  Message
		}{
			{"JSON", newEvent(), Message{Key: []byte("CASE-1"), Value: newEvent().Payload, ContentType: "application/json"}},
			{"not checked", newEvent(payloadIs(`{"a`)), Message{Key: []byte("CASE-1"), Value: []byte(`{"a`),
				ContentType: "application/json"}},
			{"bytes", newEvent(binary), Message{Key: []byte("CASE-1"), Value: []byte{0, 0xFF, '"'},
				ContentType: "application/octet-stream"}},
			{"no bytes", newEvent(emptyOne), Message{Key: []byte("CASE-1"), Value: []byte{},
				ContentType: "application/octet-stream"}},
			{"tombstone", newEvent(without), Message{Key: []byte("CASE-1")}},
			{"no key", newEvent(keyless, payloadIs("1")), Message{Value: []byte("1"), ContentType: "application/json"}},
		} {
			t.Run(string(target)+" "+tt.name, func(t *testing.T) {
				tt.want.Time = created
				got := wrap(t, Config{Target: target}, tt.event)
				same(t, got, tt.want)
				if len(got.Headers) > 0 {
					t.Errorf("headers %v, want none", got.Headers)
				}
			})
		}
	}
}

func TestWrapped(t *testing.T) {
	const head = `{"eventId":"0197-1","eventType":"CaseAccepted","eventVersion":2,"schemaRef":"reg.case.CaseAccepted.v2",` +
		`"aggregateType":"case","aggregateId":"CASE-1","aggregateVersion":9007199254740993,"producer":"cases \"x\"",` +
		`"occurredAt":"2026-07-03T02:20:13.123456Z","publishedAt":"2026-07-03T02:20:14.000000Z",`
	for _, tt := range []struct {
		name  string
		event *relay.Event
		kafka string
		http  string // "": as for Kafka
	}{
		{name: "JSON", event: newEvent(), kafka: head + `"payload":` + string(newEvent().Payload) + `}`},
		{name: "null", event: newEvent(payloadIs("null")), kafka: head + `"payload":null}`},
		{name: "white space", event: newEvent(payloadIs(" [1 ,\n2] ")), kafka: head + "\"payload\": [1 ,\n2] }"},
		{name: "bytes", event: newEvent(binary), kafka: head + `"payloadBase64":"AP8i"}`},
		{name: "no bytes", event: newEvent(emptyOne), kafka: head + `"payloadBase64":""}`},
		{name: "tombstone", event: newEvent(without), http: head + `"payload":null}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.http == "" {
				tt.http = tt.kafka
			}
			for target, text := range map[Target]string{Kafka: tt.kafka, HTTP: tt.http} {
				want := Message{Key: []byte("CASE-1"), Time: created}
				if text != "" {
					want.Value, want.ContentType = []byte(text), "application/json"
				}
				same(t, wrap(t, Config{Name: NameEnvelope, Target: target, Producer: `cases "x"`}, tt.event), want)
			}
		})
	}
	t.Run("wrapped tombstone", func(t *testing.T) {
		got := wrap(t, Config{Name: NameEnvelope, Target: Kafka, Producer: `cases "x"`, WrapTombstones: true},
			newEvent(without))
		same(t, got, Message{Key: []byte("CASE-1"), Value: []byte(head + `"payload":null}`), ContentType: "application/json",
			Time: created})
	})
}

// What cannot be wrapped is rejected, says what to do, and shows nothing of the payload.
func TestInvalidEvents(t *testing.T) {
	envelope := Config{Name: NameEnvelope, Target: HTTP, Producer: "cases"}
	structured := Config{Name: NameCloudEvents, Target: HTTP, CloudEvents: &CloudEvents{Source: "/cases",
		Extensions: map[string]string{"corr": "c"}}}
	inBinary := Config{Name: NameCloudEvents, Target: Kafka, CloudEvents: &CloudEvents{Source: "/cases", Binary: true}}
	asIs := Config{Name: NameJQ, Target: HTTP, JQ: &JQ{Expression: "."}}
	expanded := Config{Name: NameDebezium, Target: Kafka, Debezium: &Debezium{Format: FormatJSON, ExpandPayload: true,
		Placement: "number(headers.n):envelope:n"}}
	text := Config{Name: NameDebezium, Target: Kafka}
	query := func(expression string) Config {
		return Config{Name: NameJQ, Target: HTTP, JQ: &JQ{Expression: expression}}
	}
	set := func(field func(*relay.Event) *string, value string) *relay.Event {
		e := newEvent()
		*field(e) = value
		return e
	}
	headers := func(text string) *relay.Event { return newEvent(func(e *relay.Event) { e.Headers = []byte(text) }) }
	broken := newEvent(payloadIs(`{"password":"secret"`))
	latin := newEvent(payloadIs("\"secret \xe9\""))
	deep := newEvent(payloadIs(strings.Repeat("[", 10_001) + strings.Repeat("]", 10_001)))
	const problem = "payload is not valid JSON at byte"
	for _, tt := range []struct {
		name   string
		config Config
		event  *relay.Event
		says   string
	}{
		{"envelope, broken", envelope, broken, problem + " 20"},
		{"envelope, empty", envelope, newEvent(payloadIs("")), problem},
		{"envelope, two values", envelope, newEvent(payloadIs("1 2")), problem},
		{"envelope, Latin-1", envelope, latin, "at byte 8: not valid UTF-8"},
		{"envelope, deep", envelope, deep, "max depth"},
		{"envelope, text", envelope, set(func(e *relay.Event) *string { return &e.AggregateID }, "\xff"),
			"aggregate_id is not valid UTF-8"},
		{"structured, broken", structured, broken, problem},
		{"structured, no id", structured, set(func(e *relay.Event) *string { return &e.ID }, ""),
			"event_id or event_type is empty"},
		{"structured, line", structured, set(func(e *relay.Event) *string { return &e.Type }, "a\nb"),
			"attribute type has a control character"},
		{"structured, C1", structured, set(func(e *relay.Event) *string { return &e.Key }, "\u0085"),
			"attribute partitionkey has a control character"},
		{"structured, noncharacter", structured, set(func(e *relay.Event) *string { return &e.AggregateID }, "\U0001FFFF"),
			"attribute subject has a code point"},
		{"structured, UTF-8", structured, set(func(e *relay.Event) *string { return &e.SchemaRef }, "\xff"),
			"attribute schemaref is not valid UTF-8"},
		{"structured, headers", structured, headers(`["secret"]`), "headers are not a flat JSON object of strings"},
		{"binary, no type", inBinary, set(func(e *relay.Event) *string { return &e.Type }, ""),
			"event_id or event_type is empty"},
		{"jq, broken", asIs, broken, problem},
		{"jq, headers", asIs, headers(`{"a":{"b":"secret"}}`), "headers are not a flat JSON object of strings"},
		{"jq, headers broken", asIs, headers(`{"a":"secret"`), "headers are not a flat JSON object of strings"},
		{"jq, empty", query("empty"), newEvent(), "gave no result"},
		{"jq, two", query(".eventId, .payload"), newEvent(), "gave more than one result"},
		{"jq, two, one failing", query(".eventId, error"), newEvent(), "gave more than one result"},
		{"jq, type", query(".payload | keys | add + 1"), newEvent(payloadIs(`{"secret":1}`)),
			"failed: cannot add: string (mend"},
		{"jq, iterate", query(".payload[]"), newEvent(payloadIs(`"secret"`)), "failed: cannot iterate over: string (mend"},
		{"jq, function", query(".payload | fromjson"), newEvent(payloadIs(`"{secret"`)),
			"failed: fromjson cannot be applied to (mend"},
		{"jq, index", query(`.payload["a"]`), newEvent(payloadIs(`"secret"`)),
			"failed: expected an object but got: string (mend"},
		{"jq, error", query(`error("no amount")`), newEvent(), "failed: error: no amount (mend"},
		{"jq, halt", query("halt"), newEvent(), "failed: halt error: null"},
		{"jq, nan", query("nan"), newEvent(), "a number that JSON cannot say: NaN"},
		{"jq, infinite", query("[-infinite]"), newEvent(), "a number that JSON cannot say: -Inf"},
		{"jq, deep", query("reduce range(20000) as $i (0; [.])"), newEvent(), "nested deeper than 10000"},
		{"jq, long", query(`"x" * 20000000`), newEvent(), "more than 16777216 bytes"},
		{"debezium, broken", expanded, broken, problem},
		{"debezium, headers", expanded, headers(`{"n":1}`), "headers are not a flat JSON object of strings"},
		{"debezium, number", expanded, headers(`{"n":"1 "}`), `header "n" is not a number`},
		{"debezium, no number", expanded, headers(`{"n":"secret"}`), `header "n" is not a number`},
		{"debezium, bytes as text", text, newEvent(binary), "payload is not text"},
		{"debezium, no topic", text, set(func(e *relay.Event) *string { return &e.AggregateType }, ""),
			"aggregate_type is empty"},
		{"debezium, UTF-8", text, set(func(e *relay.Event) *string { return &e.AggregateID }, "\xff"),
			"aggregate_id is not valid UTF-8"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, err := newEnvelope(t, tt.config).Wrap(tt.event)
			if err == nil {
				t.Fatalf("wrapped it: %s", m.Value)
			}
			out := Outcome(err)
			if out.Kind != relay.Reject || out.Code != "ENVELOPE_INVALID" {
				t.Errorf("outcome %v %s, want a reject as ENVELOPE_INVALID", out.Kind, out.Code)
			}
			if want := strings.ReplaceAll(tt.says, " (mend", ": mend"); !strings.Contains(out.Message, want) {
				t.Errorf("message %q, want it to say %q", out.Message, want)
			}
			if !strings.Contains(out.Message, "retry") && !strings.Contains(out.Message, "discard") &&
				!strings.Contains(out.Message, "make it") {
				t.Errorf("message %q does not say what to do", out.Message)
			}
			if strings.Contains(out.Message, "secret") {
				t.Errorf("message %q shows the payload", out.Message)
			}
		})
	}
}

// All that is wrong with a configuration is told at once.
func TestConfigProblems(t *testing.T) {
	ce := func(c CloudEvents) Config { return Config{Name: NameCloudEvents, Target: HTTP, CloudEvents: &c} }
	query := func(q JQ) Config { return Config{Name: NameJQ, Target: Kafka, JQ: &q} }
	dbz := func(d Debezium) Config { return Config{Name: NameDebezium, Target: Kafka, Debezium: &d} }
	for _, tt := range []struct {
		name   string
		config Config
		want   []string
	}{
		{"name", Config{Name: "xml", Target: Kafka}, []string{`envelope "xml" is not known`}},
		{"target", Config{}, []string{`target is ""`}},
		{"options of others", Config{Target: Kafka, Producer: "p", WrapTombstones: true, CloudEvents: &CloudEvents{},
			JQ: &JQ{}, Debezium: &Debezium{}},
			[]string{"producer is set", "wrap_tombstones is set", "cloudevents is set", "jq is set", "debezium is set"}},
		{"no producer, tombstones", Config{Name: NameEnvelope, Target: HTTP, WrapTombstones: true},
			[]string{"wrap_tombstones is for Kafka alone", "producer is missing"}},
		{"no cloudevents", Config{Name: NameCloudEvents, Target: HTTP}, []string{"cloudevents.source is missing"}},
		{"no source", ce(CloudEvents{}), []string{"cloudevents.source is missing"}},
		{"cloudevents", ce(CloudEvents{Source: "a b", TypePrefix: "x\n", SchemaBase: "/x", BinaryType: "avro/",
			Extensions: map[string]string{"Up": "h", "data": "h", "schemaref": "h", "ok1": "", "": "h",
				"aaaaaaaaaaaaaaaaaaaaa": "h", "fine": "h"}}),
			[]string{"cloudevents.source", "type_prefix", "schema_base", "binary_type", `extensions: "" is no name`,
				`extensions: "Up" is no name`,
				`"aaaaaaaaaaaaaaaaaaaaa" is no name`, "extensions: data is taken", "extensions: ok1 names no header",
				"extensions: schemaref is taken"}},
		{"source", ce(CloudEvents{Source: "http://[::1"}), []string{"cloudevents.source"}},
		{"no jq", Config{Name: NameJQ, Target: Kafka}, []string{"jq.expression: missing query"}},
		{"jq", query(JQ{Expression: "{", Timeout: -1, ContentType: "json;;"}),
			[]string{"jq.timeout", "jq.content_type", "jq.expression: unexpected EOF"}},
		{"jq blank", query(JQ{Expression: " "}), []string{"jq.expression: missing query"}},
		{"jq function", query(JQ{Expression: "nosuch(1)"}), []string{"function not defined: nosuch/1"}},
		{"jq input", query(JQ{Expression: "[inputs]"}), []string{"input(s)/0 is not allowed"}},
		{"jq module", query(JQ{Expression: `import "a" as a; .`}), []string{"jq.expression: cannot load module"}},
		{"debezium over HTTP", Config{Name: NameDebezium, Target: HTTP}, []string{"debezium makes records of Kafka"}},
		{"debezium", dbz(Debezium{Format: "avro", KeyFormat: FormatBinary, ExpandPayload: true, TombstoneOnEmpty: true,
			KeyColumn:   "seq",
			RouteColumn: "nosuch",
			Placement:   "tenant:header,seq,a:b:c:d,seq:body,seq:envelope:payload,seq:header:,headers.:header,number(seq):envelope:n"}),
			[]string{`"tenant:header": there is no such column`, `"seq": write column:header`, `"a:b:c:d": write`,
				`"seq:body": it goes to`,
				`"seq:envelope:payload": the value has`, `"seq:header:": the name at the end`,
				`"headers.:header": there is no such`,
				`"number(seq):envelope:n": there is no such column`, "format is", "key_format is", "expand_payload needs",
				"tombstone_on_empty is",
				"placement puts", "key_column", "route_column"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := New(tt.config)
			var joined interface{ Unwrap() []error }
			if !errors.As(err, &joined) {
				t.Fatalf("error %v, want %d problems", err, len(tt.want))
			}
			problems := joined.Unwrap()
			if len(problems) != len(tt.want) {
				t.Errorf("%d problems, want %d:\n%v", len(problems), len(tt.want), err)
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("no problem says %q:\n%v", want, err)
				}
			}
		})
	}
}
