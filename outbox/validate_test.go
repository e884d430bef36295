package outbox

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
)

// TestCheck: what is refused, by field, and what is not.
func TestCheck(t *testing.T) {
	long := strings.Repeat("x", 256)
	for _, c := range []struct {
		name   string
		change func(*Event)
		field  string // "" : valid
		says   string
	}{
		{"the least there is", func(e *Event) { *e = Event{Topic: "t", Type: "T"} }, "", ""},
		{"everything", func(e *Event) {
			*e = Event{ID: "order/1~!", Topic: strings.Repeat("t", 255), Key: "k\tü", AggregateType: "case", AggregateID: "1",
				AggregateVersion: math.MaxInt64, Type: "T", Version: math.MaxInt32, SchemaRef: "a.b.v1", Payload: []byte(`{}`),
				Headers: map[string]string{"x-a": "\tü", "X-B": ""}, DedupKey: "a/1\x1f2", AvailableAt: time.Unix(1, 0)}
		}, "", ""},
		{"bytes", func(e *Event) { e.Payload, e.PayloadBytes = nil, []byte{0, 255} }, "", ""},

		{"id with a space", func(e *Event) { e.ID = "a b" }, "ID", "byte 1"},
		{"id beyond ASCII", func(e *Event) { e.ID = "ü" }, "ID", "byte 0"},
		{"long id", func(e *Event) { e.ID = long }, "ID", "256 bytes"},
		{"no topic", func(e *Event) { e.Topic = "" }, "Topic", "empty"},
		{"long topic", func(e *Event) { e.Topic = long }, "Topic", "at most 255"},
		{"topic with a line break", func(e *Event) { e.Topic = "a\nb" }, "Topic", "control character at byte 1"},
		{"no type", func(e *Event) { e.Type = "" }, "Type", "empty"},
		{"type not UTF-8", func(e *Event) { e.Type = "a\xff" }, "Type", "UTF-8"},
		{"long key", func(e *Event) { e.Key = long }, "Key", "256 bytes"},
		{"key with NUL", func(e *Event) { e.Key = "a\x00" }, "Key", "NUL"},
		{"key not UTF-8", func(e *Event) { e.Key = "\xc3" }, "Key", "UTF-8"},
		{"aggregate type", func(e *Event) { e.AggregateType = "a\x00" }, "AggregateType", "control"},
		{"aggregate id", func(e *Event) { e.AggregateID = long }, "AggregateID", "256 bytes"},
		{"negative aggregate version", func(e *Event) { e.AggregateVersion = -1 }, "AggregateVersion", "is -1"},
		{"negative version", func(e *Event) { e.Version = -3 }, "Version", "is -3"},
		{"big version", func(e *Event) { e.Version = math.MaxInt32 + 1 }, "Version", "2147483648"},
		{"schema ref", func(e *Event) { e.SchemaRef = long }, "SchemaRef", "256 bytes"},
		{"dedup key", func(e *Event) { e.DedupKey = "\x00" }, "DedupKey", "NUL"},
		{"far time", func(e *Event) { e.AvailableAt = time.Date(12026, 1, 1, 0, 0, 0, 0, time.UTC) }, "AvailableAt", "12026"},

		{"both payloads", func(e *Event) { e.PayloadBytes = []byte{} }, "PayloadBytes", "beside Payload"},
		{"big payload", func(e *Event) { e.Payload = []byte(`"` + strings.Repeat("x", 1<<20) + `"`) }, "Payload", "1048578 bytes"},
		{"big bytes", func(e *Event) { e.Payload, e.PayloadBytes = nil, make([]byte, 1<<20+1) }, "PayloadBytes", "1048577 bytes"},
		{"empty payload", func(e *Event) { e.Payload = []byte{} }, "Payload", "valid JSON from byte 0"},
		{"broken payload", func(e *Event) { e.Payload = []byte(`{"a":tru}`) }, "Payload", "valid JSON from byte 9"},
		{"payload with a raw NUL", func(e *Event) { e.Payload = []byte("\"\x00\"") }, "Payload", "valid JSON"},
		{"payload not UTF-8", func(e *Event) { e.Payload = []byte("\"\xff\"") }, "Payload", "UTF-8"},
		{"deep payload", func(e *Event) { e.Payload = nested(513) }, "Payload", "deeper than 512"},
		{"not so deep payload", func(e *Event) { e.Payload = nested(512) }, "", ""},
		{"brackets in text", func(e *Event) { e.Payload = []byte(`["\"` + strings.Repeat("[{", 1000) + `\\", [], {}]`) }, "", ""},
		{"wide payload", func(e *Event) { e.Payload = []byte(`[[]` + strings.Repeat(",[]", 1000) + `]`) }, "", ""},
		{"odd JSON", func(e *Event) { e.Payload = []byte(" {\"a\" :1e400,\"a\":\"\\u0000\\ud800\"}\n") }, "", ""},

		{"many headers", func(e *Event) {
			e.Headers = map[string]string{}
			for i := range 65 {
				e.Headers[fmt.Sprint("h", i)] = ""
			}
		}, "Headers", "are 65"},
		{"big headers", func(e *Event) {
			v := strings.Repeat("x", 4<<10)
			e.Headers = map[string]string{"a": v, "b": v}
		}, "Headers", "8194 bytes together"},
		{"header without a name", func(e *Event) { e.Headers = map[string]string{"": "x"} }, `Headers[""]`, "no name"},
		{"header name with a space", func(e *Event) { e.Headers = map[string]string{"a b": "x"} }, `Headers["a b"]`, "at byte 1"},
		{"header name beyond ASCII", func(e *Event) { e.Headers = map[string]string{"ü": "x"} }, `Headers["ü"]`, "at byte 0"},
		{"header name with a colon", func(e *Event) { e.Headers = map[string]string{"a:": "x"} }, `Headers["a:"]`, "at byte 1"},
		{"long header name", func(e *Event) { e.Headers = map[string]string{long: "x"} }, `Headers["` + long[:64] + `"]`, "256 bytes"},
		{"header value with CR", func(e *Event) { e.Headers = map[string]string{"a": "x\r"} }, `Headers["a"]`, "byte 1"},
		{"header value with LF", func(e *Event) { e.Headers = map[string]string{"a": "\nx"} }, `Headers["a"]`, "byte 0"},
		{"header value with NUL", func(e *Event) { e.Headers = map[string]string{"a": "\x00"} }, `Headers["a"]`, "byte 0"},
		{"header value not UTF-8", func(e *Event) { e.Headers = map[string]string{"a": "\xff"} }, `Headers["a"]`, "UTF-8"},
		{"long header value", func(e *Event) { e.Headers = map[string]string{"a": strings.Repeat("x", 4<<10+1)} }, `Headers["a"]`,
			"4097 bytes"},
		{"twin headers", func(e *Event) { e.Headers = map[string]string{"X-A": "", "x-a": ""} }, `Headers["x-a"]`, `"X-A"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			box, err := New(Postgres, Options{})
			if err != nil {
				t.Fatal(err)
			}
			e := Event{Topic: "t", Type: "T", Payload: []byte(`{}`)}
			c.change(&e)
			err = box.check([]Event{{Topic: "t", Type: "T"}, e})
			if c.field == "" {
				if err != nil {
					t.Errorf("got %v, want no problem", err)
				}
				return
			}
			var invalid *InvalidError
			if !errors.As(err, &invalid) || len(invalid.Problems) != 1 {
				t.Fatalf("got %v, want one problem", err)
			}
			p := invalid.Problems[0]
			if p.Event != 1 || p.Field != c.field || p.Hint == "" || !strings.Contains(p.Problem+": "+p.Hint, c.says) {
				t.Errorf("got %v, want event 1, %s, %q and a hint", p, c.field, c.says)
			}
		})
	}
}

func nested(depth int) []byte {
	return []byte(strings.Repeat(`[`, depth) + strings.Repeat(`]`, depth))
}

// TestCheckTellsEverythingAtOnce: all fields of all events, and no value in any text.
func TestCheckTellsEverythingAtOnce(t *testing.T) {
	box, err := New(Postgres, Options{})
	if err != nil {
		t.Fatal(err)
	}
	bad := Event{ID: "s3cret id", Topic: "", Key: "s3cret\x00", Type: "", Version: -1, AggregateVersion: -1,
		Payload: []byte(`s3cret`), PayloadBytes: []byte("s3cret"), Headers: map[string]string{"authorization": "s3cret\n"}}
	const each = 9
	err = box.check([]Event{bad, {Topic: "t", Type: "T"}, bad, bad})
	var invalid *InvalidError
	if !errors.As(err, &invalid) || len(invalid.Problems) != 3*each {
		t.Fatalf("got %v, want %d problems", err, 3*each)
	}
	for i, p := range invalid.Problems {
		if want := []int{0, 2, 3}[i/each]; p.Event != want {
			t.Errorf("problem %d is of event %d, want %d", i, p.Event, want)
		}
		if strings.Contains(p.String(), "s3cret") {
			t.Errorf("the value is told: %v", p)
		}
	}
	if lines := strings.Count(err.Error(), "\n"); lines != 21 || !strings.Contains(err.Error(), "and 7 more") {
		t.Errorf("%d lines of text, want 20 problems and the number of the others:\n%v", lines, err)
	}
}

func TestNewTellsEverythingAtOnce(t *testing.T) {
	_, err := New(Postgres, Options{Schema: "pg_x", MaxPayloadBytes: -1, MaxHeaders: 1001, MaxHeaderValueBytes: -2,
		MaxHeaderBytes: -3})
	for _, want := range []string{"pg_x", "MaxPayloadBytes is -1", "MaxHeaders is 1001", "MaxHeaderValueBytes", "MaxHeaderBytes"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in: %v", want, err)
		}
	}
	if _, err := New(SQLite, Options{Schema: "x"}); err == nil || !strings.Contains(err.Error(), "no schemas") {
		t.Errorf("SQLite with a schema: got %v", err)
	}
	if _, err := New(0, Options{}); err == nil || !strings.Contains(err.Error(), "dialect") {
		t.Errorf("no dialect: got %v", err)
	}
}
