package envelope

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// record is a line of testdata/debezium.jsonl: what Debezium 3.6.1 wrote to Kafka.
type record struct {
	Profile     string
	Topic       string
	Key         string
	Value       *string
	ValueHex    *string `json:"value_hex"`
	TimestampMs *int64  `json:"timestamp_ms"`
	Headers     [][2]*string
}

// row is a row of testdata/debezium-rows.sql, by column; nil is null.
type row map[string]*string

// profiles are the settings that the records were made with, in our options. The columns tenant and ver, which our table does not
// have, are headers of the event.
var profiles = map[string]Debezium{
	"string":           {},
	"json-with-schema": {Format: FormatJSONSchema, KeyFormat: FormatJSONSchema},
	"binary":           {Format: FormatBinary},
	"expand":           {Format: FormatJSON, ExpandPayload: true},
	"expand-placement": {Format: FormatJSON, ExpandPayload: true,
		Placement: "headers.tenant:header:tenantId,number(headers.ver):envelope:version,event_type:header:eventType"},
	"string-timestamp-headers": {EventTime: true, Placement: "headers.tenant:header:tenantId,headers.ver:header:version"},
}

// faults are the records in which Debezium's value is a fault, by profile and the last digit of the id, and ours.
var faults = map[string]struct{ why, ours string }{
	"expand 2": {"1e3 became 1000.0", `{"n":1234567890123456789,"f":1.0,"e":1e3,"neg":-0.5,"u":"żółć"}`},
	"expand 3": {"an array of mixed types became a string", `[1,2,{"z":null}]`},
	"expand 4": {"a string became a string that holds JSON", `"just a string"`},
	"expand 7": {"an array of mixed types deep inside made all of it a string",
		`{"deep":{"k":[true,false,null,"\"q\""]},"z":"","a":9007199254740993}`},
	"expand-placement 2": {"1e3 became 1000.0",
		`{"payload":{"n":1234567890123456789,"f":1.0,"e":1e3,"neg":-0.5,"u":"żółć"},"version":5}`},
	"expand-placement 3": {"an array of mixed types became a string", `{"payload":[1,2,{"z":null}],"version":null}`},
	"expand-placement 4": {"a string became a string that holds JSON", `{"payload":"just a string","version":1}`},
	"expand-placement 7": {"an array of mixed types deep inside made all of it a string",
		`{"payload":{"deep":{"k":[true,false,null,"\"q\""]},"z":"","a":9007199254740993},"version":2}`},
}

// Every record that Debezium wrote, byte for byte: topic, key, value, headers and timestamp.
func TestDebeziumRecords(t *testing.T) {
	rows, records := readRows(t), readRecords(t)
	if len(rows) != 7 || len(records) != 7*len(profiles) {
		t.Fatalf("%d rows and %d records, want 7 and %d", len(rows), len(records), 7*len(profiles))
	}
	found := 0
	for _, r := range records {
		id := *r.Headers[0][1]
		name := r.Profile + " " + id[len(id)-1:]
		t.Run(name, func(t *testing.T) {
			options, known := profiles[r.Profile]
			if !known {
				t.Fatalf("the profile %q is not known", r.Profile)
			}
			m := wrap(t, Config{Name: NameDebezium, Target: Kafka, Debezium: &options}, rows[id].event(t, r.Profile))
			if got, want := m.Topic, "outbox.event."+r.Topic; got != want {
				t.Errorf("topic %q, want %q", got, want)
			}
			if m.Key == nil || string(m.Key) != r.Key {
				t.Errorf("key %q, want %q", m.Key, r.Key)
			}
			want := r.value(t)
			if fault, ok := faults[name]; ok {
				found++
				if fault.ours == string(want) {
					t.Errorf("Debezium's value is ours: no fault (%s)", fault.why)
				}
				want = []byte(fault.ours)
			}
			if !bytes.Equal(m.Value, want) || (m.Value == nil) != (want == nil) {
				t.Errorf("value %s\nwant  %s", show(m.Value), show(want))
			}
			if got, want := headerText(m.Headers), r.headerText(); got != want {
				t.Errorf("headers %s\nwant    %s", got, want)
			}
			if got, want := millis(m.Time), r.TimestampMs; (got == nil) != (want == nil) || got != nil && *got != *want {
				t.Errorf("timestamp %v, want %s ms", m.Time, showMillis(want))
			}
			if !m.Complete {
				t.Error("other headers would be added")
			}
		})
	}
	if found != len(faults) {
		t.Errorf("%d faults met, want all %d", found, len(faults))
	}
}

// What no record has: the escapes of Jackson, bytes within JSON, the other converters for keys. The values are what EventRouter
// 3.6.1 with JsonConverter 4.3.1 made of the same rows.
func TestDebeziumConverters(t *testing.T) {
	const (
		jsonOf  = `{"schema":{"type":"string","optional":true,"name":"io.debezium.data.Json","version":1},"payload":`
		bytesOf = `{"schema":{"type":"bytes","optional":true},"payload":`
		odd     = "k\"\\\x01\x1f/é\u2028\x7f\n😀"
		oddJSON = `"k\"\\\u0001\u001F/é` + "\u2028\x7f" + `\n\uD83D\uDE00"`
		payload = `{"s": "😀", "e":"\u00e9\/\ud83d\ude00\u0000"}`
	)
	asJSON, withSchema := Debezium{Format: FormatJSON}, Debezium{Format: FormatJSONSchema}
	expanded := Debezium{Format: FormatJSON, ExpandPayload: true}
	placed := Debezium{Format: FormatJSON, Placement: "aggregate_version:envelope,event_type:envelope:t,created_at:envelope:c"}
	event := func(payload string) relay.Event {
		return relay.Event{Payload: []byte(payload), CreatedAt: time.Date(2026, 7, 3, 4, 20, 13, 1e8, time.FixedZone("", 7200))}
	}
	binary := func(payload string) relay.Event { return relay.Event{Payload: []byte(payload), Binary: true} }
	for _, tt := range []struct {
		name    string
		options Debezium
		event   relay.Event
		want    string
	}{
		{"json", asJSON, event(payload), `"{\"s\": \"\uD83D\uDE00\", \"e\":\"\\u00e9\\/\\ud83d\\ude00\\u0000\"}"`},
		{"json-schema", withSchema, event(payload), jsonOf +
			`"{\"s\": \"\uD83D\uDE00\", \"e\":\"\\u00e9\\/\\ud83d\\ude00\\u0000\"}"}`},
		{"expanded", expanded, event(payload), `{"s":"\uD83D\uDE00","e":"é/\uD83D\uDE00\u0000"}`},
		{"json scalar", asJSON, event("3"), `"3"`},
		{"json null", asJSON, event("null"), `"null"`},
		{"json, no payload", asJSON, relay.Event{}, `null`},
		{"json bytes", asJSON, binary("\x00\xff"), `"AP8="`},
		{"json no bytes", asJSON, binary(""), `""`},
		{"expanded bytes", expanded, binary("\x00\xff"), `"AP8="`},
		{"json-schema bytes", withSchema, binary("\x00\xff"), bytesOf + `"AP8="}`},
		{"json-schema no bytes", withSchema, binary(""), bytesOf + `""}`},
		{"placed", placed, event(`{}`), `{"payload":"{}","aggregate_version":4,"t":"T","c":"2026-07-03T02:20:13.1Z"}`},
		{"placed bytes", placed, binary("\x00\xff"),
			`{"payload":"AP8=","aggregate_version":4,"t":"T","c":"0001-01-01T00:00:00Z"}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := tt.event
			e.ID, e.AggregateType, e.AggregateID, e.Type, e.AggregateVersion = "1", "case", odd, "T", 4
			for format, wantKey := range map[Format]string{
				FormatText: odd, FormatJSON: oddJSON,
				FormatJSONSchema: `{"schema":{"type":"string","optional":false},"payload":` + oddJSON + `}`,
			} {
				options := tt.options
				options.KeyFormat = format
				m := wrap(t, Config{Name: NameDebezium, Target: Kafka, Debezium: &options}, &e)
				if got := string(m.Value); got != tt.want {
					t.Errorf("value %s\nwant  %s", got, tt.want)
				}
				if got := string(m.Key); got != wantKey {
					t.Errorf("%s key %q, want %q", format, got, wantKey)
				}
			}
		})
	}
}

// What ours keeps and Debezium does not, beyond what the records show.
func TestDebeziumExpandedIsExact(t *testing.T) {
	options := &Debezium{Format: FormatJSON, ExpandPayload: true}
	for _, tt := range []struct{ name, payload, want string }{
		{"integer of 21 digits", `{"big": 123456789012345678901}`, `{"big":123456789012345678901}`},
		{"decimals", `{"e":0.10, "g":1e400, "z":-0, "w":1.0E-7}`, `{"e":0.10,"g":1e400,"z":-0,"w":1.0E-7}`},
		{"nulls and empty arrays", `{"a":null,"b":[ ],"c":{ }}`, `{"a":null,"b":[],"c":{}}`},
		{"unlike objects in an array", `[{"x":1},{"y":2}]`, `[{"x":1},{"y":2}]`},
		{"array at the top", ` [1, "2"] `, `[1,"2"]`},
		{"null", `null`, `null`},
		{"a name twice", `{"d":1,"d":2}`, `{"d":1,"d":2}`},
		{"half a pair of surrogates", `"\ud83d x"`, `"\ud83d x"`},
		{"the replacement character", `"\ufffd \u00e9"`, `"\ufffd \u00e9"`},
		{"spaces in strings", `{" a ":" b\n "}`, `{" a ":" b\n "}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := &relay.Event{ID: "1", AggregateType: "case", Payload: []byte(tt.payload)}
			m := wrap(t, Config{Name: NameDebezium, Target: Kafka, Debezium: options}, e)
			if got := string(m.Value); got != tt.want {
				t.Errorf("%s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestDebeziumOptions(t *testing.T) {
	e := &relay.Event{ID: "1", Topic: "cases", Key: "K", AggregateType: "case", AggregateID: "A", Type: "T", Version: 3, Seq: 9,
		AggregateVersion: 1<<62 + 1, SchemaRef: "s.v1", Headers: []byte(`{"n":"1.50","t":""}`)}
	for _, tt := range []struct {
		name    string
		options Debezium
		want    string
	}{
		{"defaults", Debezium{}, `outbox.event.case "A" null`},
		{"route by the topic", Debezium{RouteColumn: "topic_name", Topic: "${routedByValue}"}, `cases "A" null`},
		{"one topic", Debezium{Topic: "all"}, `all "A" null`},
		{"key", Debezium{KeyColumn: "partition_key"}, `outbox.event.case "K" null`},
		{"no payload", Debezium{Format: FormatJSONSchema},
			`outbox.event.case "A" "{\"schema\":{\"type\":\"string\",\"optional\":true,` +
				`\"name\":\"io.debezium.data.Json\",\"version\":1},\"payload\":null}"`},
		{"tombstone", Debezium{Format: FormatJSONSchema, TombstoneOnEmpty: true}, `outbox.event.case "A" null`},
		{"tombstone with members", Debezium{Format: FormatJSON, TombstoneOnEmpty: true, Placement: "seq:envelope"},
			`outbox.event.case "A" null`},
		{"members",
			Debezium{Format: FormatJSON, Placement: "seq:envelope, aggregate_version:envelope:v,headers.n:envelope:text," +
				"number(headers.n):envelope:n,headers.gone:envelope:gone,headers.t:envelope:t"},
			`outbox.event.case "A" "{\"payload\":null,\"seq\":9,\"v\":4611686018427387905,\"text\":\"1.50\",\"n\":1.50,\"gone\":null,\"t\":\"\"}"`},
		{"headers",
			Debezium{Placement: "seq:header,event_version:header:v,headers.n:HEADER:n,number(headers.gone):header:g,headers.t:header:t"},
			`outbox.event.case "A" null seq="9" v="3" n="1.50" g=null t=""`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := wrap(t, Config{Name: NameDebezium, Target: Kafka, Debezium: &tt.options}, e)
			got := m.Topic + " " + show(m.Key) + " " + show(m.Value)
			if extra := headerText(m.Headers[1:]); extra != "" {
				got += " " + strings.TrimSpace(extra)
			}
			if got != tt.want {
				t.Errorf("%s\nwant %s", got, tt.want)
			}
		})
	}
}

// event puts a row into our table. The binary profile reads payload_b; where a number of 20 digits would have stopped Debezium,
// one of 19 was inserted.
func (r row) event(t *testing.T, profile string) *relay.Event {
	t.Helper()
	text := func(column string) string {
		if r[column] == nil {
			return ""
		}
		return *r[column]
	}
	e := &relay.Event{ID: text("id"), AggregateType: text("aggregatetype"), AggregateID: text("aggregateid"),
		Type: text("type"), Version: 1}
	headers := map[string]string{}
	for _, column := range []string{"tenant", "ver"} {
		if r[column] != nil {
			headers[column] = text(column)
		}
	}
	var err error
	if e.Headers, err = json.Marshal(headers); err != nil {
		t.Fatal(err)
	}
	if r["ts"] != nil {
		if e.CreatedAt, err = time.Parse(time.RFC3339, text("ts")); err != nil {
			t.Fatal(err)
		}
	}
	switch {
	case profile == "binary" && r["payload_b"] != nil:
		if e.Payload, err = hex.DecodeString(strings.TrimPrefix(text("payload_b"), `\x`)); err != nil {
			t.Fatal(err)
		}
		e.Binary = true
	case profile != "binary" && r["payload"] != nil:
		e.Payload = []byte(text("payload"))
		if strings.HasPrefix(profile, "expand") || profile == "string-timestamp-headers" {
			e.Payload = bytes.Replace(e.Payload, []byte("12345678901234567890"), []byte("1234567890123456789"), 1)
		}
	}
	return e
}

func (r record) value(t *testing.T) []byte {
	t.Helper()
	switch {
	case r.ValueHex != nil:
		value, err := hex.DecodeString(*r.ValueHex)
		if err != nil {
			t.Fatal(err)
		}
		return value
	case r.Value != nil:
		return []byte(*r.Value)
	}
	return nil
}

func (r record) headerText() string {
	var headers []Header
	for _, h := range r.Headers {
		header := Header{Name: *h[0]}
		if h[1] != nil {
			header.Value = []byte(*h[1])
		}
		headers = append(headers, header)
	}
	return headerText(headers)
}

// headerText tells null from empty.
func headerText(headers []Header) string {
	var b strings.Builder
	for _, h := range headers {
		fmt.Fprintf(&b, "%s=%s ", h.Name, show(h.Value))
	}
	return b.String()
}

func show(value []byte) string {
	if value == nil {
		return "null"
	}
	return fmt.Sprintf("%q", value)
}

func millis(at time.Time) *int64 {
	if at.IsZero() {
		return nil
	}
	ms := at.UnixMilli()
	return &ms
}

func showMillis(ms *int64) string {
	if ms == nil {
		return "no"
	}
	return fmt.Sprint(*ms)
}

func readRecords(t *testing.T) (records []record) {
	t.Helper()
	data, err := os.ReadFile("testdata/debezium.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(data) {
		var r record
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatal(err)
		}
		records = append(records, r)
	}
	return records
}

// readRows reads the INSERT. Its values hold no quote.
func readRows(t *testing.T) map[string]row {
	t.Helper()
	data, err := os.ReadFile("testdata/debezium-rows.sql")
	if err != nil {
		t.Fatal(err)
	}
	columns := strings.Split(regexp.MustCompile(`outbox\(([^)]*)\)`).FindStringSubmatch(string(data))[1], ",")
	rows := map[string]row{}
	for line := range strings.Lines(string(data)) {
		if !strings.HasPrefix(line, "(") {
			continue
		}
		values := regexp.MustCompile(`'[^']*'|[^',()]+`).FindAllString(strings.TrimRight(line, ",;\n"), -1)
		if len(values) != len(columns) {
			t.Fatalf("%d values for %d columns: %s", len(values), len(columns), line)
		}
		r := row{}
		for i, value := range values {
			if value != "null" {
				value = strings.Trim(value, "'")
				r[columns[i]] = &value
			}
		}
		rows[*r["id"]] = r
	}
	return rows
}
