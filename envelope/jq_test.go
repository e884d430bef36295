package envelope

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/itchyny/gojq"
	"github.com/pillarbox-dev/pillarbox/envelope/internal/jsontext"
	"github.com/pillarbox-dev/pillarbox/relay"
)

func TestJQ(t *testing.T) {
	const payload = `{"z": 12345678901234567890, "a":{"y":1.0, "x": [1e3 ,{"q":2,"b":-0}]},"u":"\u00e9\/ż","n":null}`
	for _, tt := range []struct{ name, expression, want string }{
		{"untouched", ".payload", payload},
		{"untouched inside", "{p: .payload, b: 1}", `{"b":1,"p":` + payload + `}`},
		{"untouched deep inside", ".payload.a", `{"y":1.0, "x": [1e3 ,{"q":2,"b":-0}]}`},
		{"untouched in an array", "[.payload.a.x[1], .payload.a.x]", `[{"q":2,"b":-0},[1e3 ,{"q":2,"b":-0}]]`},
		{"changed above", ".payload | .added = true | del(.z)",
			`{"a":{"y":1.0, "x": [1e3 ,{"q":2,"b":-0}]},"added":true,"n":null,"u":"é/ż"}`},
		{"changed within", ".payload.a | .x[1].q = 3", `{"x":[1e3,{"b":-0,"q":3}],"y":1.0}`},
		{"part of an array", ".payload.a.x[:1]", `[1e3]`},
		{"whole part of an array", ".payload.a.x[0:2]", `[1e3 ,{"q":2,"b":-0}]`},
		{"a number that moved", "[.payload.z, .payload.a.y]", `[12345678901234567890,1.0]`},
		{"big sums", "[.payload.z + 1, .payload.z * .payload.z, .aggregateVersion + 2]",
			`[12345678901234567891,152415787532388367501905199875019052100,9007199254740995]`},
		{"decimals are float64", "[0.1 + 0.2, 3.0 * 1, 1e100 + 1]", `[0.30000000000000004,3,1e+100]`},
		{"whole quotients are exact", "[12345678901234567890 / 10, 1 / 3]", `[1234567890123456789,0.3333333333333333]`},
		{"a string", ".payload.u", `"é/ż"`},
		{"a string of all kinds", `"\u0001\u2028<&>\"\\ 😀"`, "\"\\u0001\u2028<&>\\\"\\\\ 😀\""},
		{"no value", ".payload.nosuch", `null`},
		{"a boolean", ".payload.n == null", `true`},
		{"nothing of either", "[{}, []]", `[{},[]]`},
		{"the event", "del(.payload)",
			`{"aggregateId":"CASE-1","aggregateType":"case","aggregateVersion":9007199254740993,"eventId":"0197-1",` +
				`"eventType":"CaseAccepted","eventVersion":2,"headers":{"correlationId":"c 1","traceparent":"00-ab"},` +
				`"occurredAt":"2026-07-03T02:20:13.123456Z","partitionKey":"CASE-1","producer":"cases","publishedAt":"2026-07-03T02:20:14.000000Z",` +
				`"schemaRef":"reg.case.CaseAccepted.v2","topic":"cases"}`},
		{"a header", ".headers.correlationId", `"c 1"`},
		{"no environment", "[env, $ENV]", `[{},{}]`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("PILLARBOX_TEST", "seen")
			got := wrap(t, Config{Name: NameJQ, Target: Kafka, Producer: "cases", JQ: &JQ{Expression: tt.expression}},
				newEvent(payloadIs(payload)))
			same(t, got, Message{Key: []byte("CASE-1"), Value: []byte(tt.want), ContentType: "application/json", Time: created})
		})
	}
}

func TestJQTombstonesAndBytes(t *testing.T) {
	for _, tt := range []struct {
		name   string
		target Target
		wrap   bool
		event  *relay.Event
		want   string // "": no value
	}{
		{"Kafka", Kafka, false, newEvent(without), ""},
		{"Kafka, wrapped", Kafka, true, newEvent(without), `[null,null,true]`},
		{"HTTP", HTTP, false, newEvent(without), `[null,null,true]`},
		{"bytes", Kafka, false, newEvent(binary), `[null,"AP8i",false]`},
		{"no headers", Kafka, false, newEvent(payloadIs("1"), func(e *relay.Event) { e.Headers = nil }), `[1,null,true]`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			config := Config{Name: NameJQ, Target: tt.target, WrapTombstones: tt.wrap, JQ: &JQ{
				Expression: `[.payload, .payloadBase64, has("payload")]`, ContentType: "application/vnd.x+json"}}
			want := Message{Key: []byte("CASE-1"), Time: created}
			if tt.want != "" {
				want.Value, want.ContentType = []byte(tt.want), "application/vnd.x+json"
			}
			same(t, wrap(t, config, tt.event), want)
		})
	}
}

// An expression without end is tried again, not held against the event.
func TestJQTimeout(t *testing.T) {
	for _, expression := range []string{"def f: f; f", "1, def f: f; f"} {
		start := time.Now()
		_, err := newEnvelope(t, Config{Name: NameJQ, Target: Kafka, JQ: &JQ{Expression: expression,
			Timeout: 20 * time.Millisecond}}).Wrap(newEvent())
		if !errors.Is(err, ErrTimeout) {
			t.Errorf("%s: error %v after %v, want %v", expression, err, time.Since(start), ErrTimeout)
			continue
		}
		if out := Outcome(err); out.Kind != relay.Retry || out.Code != CodeTimeout {
			t.Errorf("outcome %v %s, want a retry as %s", out.Kind, out.Code, CodeTimeout)
		}
	}
}

// An object of the event that is in the result still says what its text says: gojq changes copies alone. Here is everything that
// changes something, compared with what gojq itself writes.
func TestJQChangesCopiesAlone(t *testing.T) {
	const payload = `{"c":[3,1,2,{"k":"v","a":[1,2,3]}],"o":{"b":1,"a":{"y":[],"x":{}}},"s":"x,y","n":12345678901234567890}`
	for _, expression := range []string{
		".payload | .c[0] = 9 | .o.a.x.z = 1, .", ".payload | .c |= sort", ".payload | .c |= reverse",
		".payload | del(.c[1,2])", ".payload | .c[1:3] = []",
		".payload | .c[3].a[] |= . + 1", ".payload | [.., .]", ".payload | to_entries",
		".payload | with_entries(.value |= tojson)",
		".payload | walk(if type == \"number\" then . + 1 else . end)", ".payload | [paths(..)]", ".payload | .c + [.c] + .c",
		".payload | .o * {a: {x: 2}}",
		".payload | .o + {b: 2}", ".payload | reduce .c[] as $x (.; .list += [$x])",
		".payload | reduce range(5) as $i (.; .o.b += 1 | .c[$i] = .o)",
		".payload | foreach .c[] as $x (.c; .[0] = $x; .)", ".payload | .c |= map(.)",
		".payload | [.c[0:2], .c[0:4], .c[2:]]", ".payload | [limit(3; repeat(.c))]",
		".payload | .c -= [1]", ".payload | .c |= (.[0] = .[1])", ".payload | .o.a |= (.y += [1] | .x = .y)",
		".payload | [.c, (.c | .[0] = 5), .c]",
		".payload | .o as $o | .o.b = 5 | [., $o]", ".payload | group_by(.)? // .",
		".payload | [.c[3], (.c[3] | .k = .a)] | transpose? // .", ".payload | tostream",
		".payload | .c[3] as {a: $a} | $a | .[1] = $a", ".payload | getpath([\"o\",\"a\"]) | .y[2] = 1",
		".payload | delpaths([[\"o\",\"b\"],[\"c\",0]])",
		".payload | .. |= .", ".payload | .c |= unique_by(type)", ".payload | [.c | combinations(1)?]",
		".payload | .c | flatten", ".payload | .o | .a += {z: .}",
		".payload | until(.done; .done = true | .o.a.x[\"k\"] = .c)", ".payload | .c | .[length:] = [1] | .[0:0] = [.]",
		".headers | .x = \"1\", .",
	} {
		t.Run(expression, func(t *testing.T) {
			all := "[" + expression + "]"
			e := newEvent(payloadIs(payload))
			config := Config{Name: NameJQ, Target: Kafka, JQ: &JQ{Expression: all}}
			got := wrap(t, config, e).Value

			code, err := compile(all)
			if err != nil {
				t.Fatal(err)
			}
			input, err := newEnvelope(t, config).(*jq).input(e, containers{})
			if err != nil {
				t.Fatal(err)
			}
			result, _ := code.Run(input).Next()
			if err, failed := result.(error); failed {
				t.Fatal(err)
			}
			want, err := gojq.Marshal(result)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(decode(t, got), decode(t, want)) {
				t.Errorf("%s\ngojq says %s", got, want)
			}
			if strings.Contains(expression, "| [.c, (") && !strings.Contains(string(got), `"a":[1,2,3]`) {
				t.Errorf("what was not touched has changed: %s", got)
			}
		})
	}
}

func decode(t *testing.T, text []byte) any {
	t.Helper()
	if err := jsontext.Check(text); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return jsontext.Parse(text, nil)
}

// Go's own decoder agrees with ours about the input.
func TestJQInputIsWhatThePayloadSays(t *testing.T) {
	e := newEvent()
	input, err := newEnvelope(t, Config{Name: NameJQ, Target: Kafka, JQ: &JQ{Expression: "."}}).(*jq).input(e, containers{})
	if err != nil {
		t.Fatal(err)
	}
	var want any
	decoder := json.NewDecoder(strings.NewReader(string(e.Payload)))
	decoder.UseNumber()
	if err := decoder.Decode(&want); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(input["payload"], want) {
		t.Errorf("payload %v, want %v", input["payload"], want)
	}
}
