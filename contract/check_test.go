package contract

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/pillarbox-dev/pillarbox/relay"
)

func TestBreaches(t *testing.T) {
	const order = `{
		"type": "object", "required": ["id", "amount"], "additionalProperties": false,
		"properties": {
			"id": {"type": "string"}, "amount": {"type": "number", "minimum": 0.01}, "a/b~c": {"type": "null"},
			"lines": {"type": "array", "items": {"type": "object", "required": ["sku"]}}
		}}`
	for _, tt := range []struct{ name, schema, payload, want string }{
		{"passes", order, `{"id":"1","amount":0.01,"lines":[{"sku":null}],"a/b~c":null}`, ""},
		{"missing", order, `{}`, "/amount is missing; /id is missing"},
		{"root", order, `[]`, "the payload must be object, and is array"},
		{"deep", order, `{"id":"1","amount":1,"lines":[{"sku":1},{"x":1},3]}`,
			"/lines/1/sku is missing; /lines/2 must be object, and is number"},
		{"not allowed", order, `{"id":"1","amount":1,"z":1,"y":2}`, "/y is not allowed; /z is not allowed"},
		{"pointer with escapes", order, `{"id":"1","amount":1,"a/b~c":1}`, "/a~1b~0c must be null, and is number"},
		{"pointer with a line break", `{"additionalProperties":false}`, `{"a\nb":1}`, `"/a\nb" is not allowed`},
		{"long pointer", `{"additionalProperties":false}`, `{"` + strings.Repeat("x", 300) + `":1}`,
			`"/` + strings.Repeat("x", 198) + `…" is not allowed`},
		{"all at once", order, `{"amount":0.001,"lines":{}}`,
			"/amount must be at least 0.01; /id is missing; /lines must be array, and is object"},
		{"many", `{"items":false}`, `[1,1,1,1,1,1,1,1,1,1,1,1]`, "/0 is not allowed; /1 is not allowed; /10 is not allowed; " +
			"/11 is not allowed; /2 is not allowed; /3 is not allowed; /4 is not allowed; /5 is not allowed; /6 is not allowed; " +
			"/7 is not allowed; and 2 more"},
		{"several types", `{"type":["string","null"]}`, `1`, "the payload must be null or string, and is number"},

		{"enum", `{"enum":["a",1,{"x":null}]}`, `"b"`, `the payload must be one of "a", 1, {"x":null}`},
		{"long enum", `{"enum":["` + strings.Repeat("a", 150) + `","` + strings.Repeat("b", 150) + `"]}`, `"b"`,
			`the payload must be one of "` + strings.Repeat("a", 150) + `" …`},
		{"const", `{"const":{"a":[1.0]}}`, `{"a":[2]}`, `the payload must be {"a":[1.0]}`},
		{"const, equal number", `{"const":{"a":[1.0]}}`, `{"a":[10e-1]}`, ""},
		{"format", `{"format":"date-time"}`, `"2026-13-01T00:00:00Z"`, "the payload is not a valid date-time"},
		{"format in draft-07", `{` + draft07 + `,"properties":{"m":{"format":"email"},"u":{"format":"uuid"}}}`,
			`{"m":"x","u":"y"}`,
			"/m is not a valid email; /u is not a valid uuid"},
		{"unknown format", `{"format":"int64"}`, `"x"`, ""},
		{"pattern", `{"pattern":"^a+$"}`, `"b"`, `the payload must match the pattern "^a+$"`},
		{"lengths", `{"properties":{"a":{"minLength":2},"b":{"maxLength":2}}}`, `{"a":"ż","b":"żżż"}`,
			"/a must have at least 2 characters, and has 1; /b must have at most 2 characters, and has 3"},
		{"items", `{"properties":{"a":{"minItems":1},"b":{"maxItems":1},"c":{"uniqueItems":true},"d":{"contains":{"const":1}},` +
			`"e":{"contains":{"const":1},"minContains":2},"f":{"contains":{"const":1},"maxContains":1}}}`,
			`{"a":[],"b":[1,2],"c":[1,{"x":1},1.0],"d":[2],"e":[1],"f":[1,1]}`,
			"/a must have at least 1 items, and has 0; /b must have at most 1 items, and has 2; /c has equal items, at 0 and 2; " +
				"/d has no item that it must contain; /e must contain at least 2 of certain items, and has 1; " +
				"/f must contain at most 1 of certain items, and has 2"},
		{"items of draft-07", `{` + draft07 + `,"items":[{}],"additionalItems":false}`, `[1,2,3]`,
			"the payload has 2 items more than are allowed"},
		{"members", `{"properties":{"a":{"minProperties":1},"b":{"maxProperties":0}}}`, `{"a":{},"b":{"x":1}}`,
			"/a must have at least 1 members, and has 0; /b must have at most 0 members, and has 1"},
		{"bounds", `{"items":{"minimum":-1.5,"maximum":1e2,"exclusiveMinimum":-2,"exclusiveMaximum":100,"multipleOf":0.5}}`,
			`[-1.75,100]`,
			"/0 must be a multiple of 0.5; /0 must be at least -1.5; /1 must be less than 100"},
		{"exclusive", `{"exclusiveMinimum":0}`, `0`, "the payload must be more than 0"},
		{"maximum", `{"maximum":0.1}`, `0.10000000000000000000001`, "the payload must be at most 0.1"},
		{"not", `{"not":{"type":"string"}}`, `"x"`, "the payload is what it must not be (not)"},
		{"false", `{"properties":{"a":false}}`, `{"a":1}`, "/a is not allowed"},
		{"false at the top", `false`, `1`, "the payload is not allowed"},
		{"unevaluated", `{"properties":{"a":true},"unevaluatedProperties":false}`, `{"a":1,"b":1}`, "/b is not allowed"},
		{"dependentRequired", `{"dependentRequired":{"a":["b"]}}`, `{"a":1}`, "/b is missing, and a needs it"},
		{"dependencies", `{` + draft07 + `,"dependencies":{"a":["b"]}}`, `{"a":1}`, "/b is missing, and a needs it"},
		{"propertyNames", `{"additionalProperties":{"propertyNames":{"pattern":"^x"}}}`,
			`{"a":{"xa":1},"b":{"y":1},"c":{"xc":1},"d":{"xd":1}}`,
			"/b/y has a name that is not allowed"},
		{"allOf", `{"allOf":[{"required":["a"]},{"properties":{"b":{"type":"string"}}}]}`, `{"b":1}`,
			"/a is missing; /b must be string, and is number"},
		{"if", `{"if":{"properties":{"k":{"const":1}}},"then":{"required":["a"]},"else":{"required":["b"]}}`, `{"k":2}`,
			"/b is missing"},

		{"nullable", `{"properties":{"a":{"anyOf":[{"type":"object","required":["x"]},{"type":"null"}]}}}`, `{"a":{}}`,
			"/a/x is missing"},
		{"nullable, other type", `{"properties":{"a":{"anyOf":[{"type":"object"},{"type":"null"}]}}}`, `{"a":1}`,
			"/a fits none of the alternatives (anyOf)"},
		{"by a constant",
			`{"oneOf":[{"properties":{"k":{"const":"a"},"v":{"type":"string"}}},{"properties":{"k":{"const":"b"},"v":{"type":"number"}}}]}`,
			`{"k":"a","v":1}`, "/v must be string, and is number"},
		{"by none", `{"oneOf":[{"required":["a"]},{"required":["b"]}]}`, `{}`,
			"the payload fits none of the alternatives (oneOf)"},
		{"by both", `{"oneOf":[{"required":["a"]},{"required":["b"]}]}`, `{"a":1,"b":2}`,
			"the payload fits more than one of the alternatives (oneOf)"},
		{"through references", `{"$ref":"#/$defs/a","$defs":{"a":{"properties":{"n":{"$ref":"#/$defs/b"}}},"b":{"maximum":1}}}`,
			`{"n":2}`, "/n must be at most 1"},
		{"without end", `{"allOf":[{"$ref":"#"}]}`, `1`,
			"the payload cannot be checked: the schema refers to itself without end"},

		{"not JSON", `{}`, `{"a"`, "the payload is not JSON: unexpected EOF"},
		{"not JSON at", `{}`, `{"a" 1}`, "the payload is not JSON at byte 6: invalid character '1' after object key"},
		{"empty", `{}`, ``, "the payload is empty"},
		{"two values", `{}`, `1 2`, "the payload is not JSON: there is more after the first value"},
		{"Latin-1", `{}`, "\"\xe9\"", "the payload is not valid UTF-8"},
		{"a name twice", `{}`, `{"a":[{"b":{"c~":":","c~":2}}]}`, "/a/0/b/c~0 is there twice"},
		{"a name twice, escaped", `{}`, `{"\u0061":1,"a":2}`, "/a is there twice"},
		{"the same name apart", `{}`, `[{"a":{"a":":\":"}},{"a":"\\"}]`, ""},
		{"deep", `{}`, strings.Repeat("[", 10001) + strings.Repeat("]", 10001),
			"the payload is not JSON at byte 10001: invalid character '[' exceeded max depth"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := breach(t, tt.schema, tt.payload); got != tt.want {
				t.Errorf("%s\nwant %s", got, tt.want)
			}
		})
	}
}

// No float64 in between.
func TestNumbersAreExact(t *testing.T) {
	for _, tt := range []struct{ name, schema, payload, want string }{
		{"2^53 and one more", `{"maximum":9007199254740992}`, `9007199254740993`,
			"the payload must be at most 9007199254740992"},
		{"2^53 itself", `{"maximum":9007199254740993}`, `9007199254740993`, ""},
		{"30 digits", `{"const":123456789012345678901234567890}`, `123456789012345678901234567891`,
			"the payload must be 123456789012345678901234567890"},
		{"30 digits, equal", `{"const":123456789012345678901234567890}`, `123456789012345678901234567890.0`, ""},
		{"an integer with a fraction of 0", `{"type":"integer"}`, `10.00e1`, ""},
		{"beyond float64", `{"type":"integer","minimum":1e308}`, `1e309`, ""},
		{"cents", `{"multipleOf":0.01}`, `99999999999999999.99`, ""},
		{"tenths of cents", `{"multipleOf":0.01}`, `0.001`, "the payload must be a multiple of 0.01"},
		{"unlike neighbours", `{"uniqueItems":true}`, `[9007199254740992,9007199254740993]`, ""},
		{"as big as it gets", `{"minimum":0}`, "1e1000", ""},
		{"as long as it gets", `{"minimum":0}`, strings.Repeat("9", 1000), ""},
		// The library would take for ever, or panic.
		{"too big", `{"minimum":0}`, "1e1001",
			"the payload is a number of more than 1000 characters or with an exponent beyond ±1000"},
		{"too small", `{}`, `{"a":[1E-1001]}`,
			"/a/0 is a number of more than 1000 characters or with an exponent beyond ±1000"},
		{"far too big", `{"minimum":0}`, "1e99999999999999999999",
			"the payload is a number of more than 1000 characters or with an exponent beyond ±1000"},
		{"too long", `{"minimum":0}`, strings.Repeat("9", 1001),
			"the payload is a number of more than 1000 characters or with an exponent beyond ±1000"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := breach(t, tt.schema, tt.payload); got != tt.want {
				t.Errorf("%s\nwant %s", got, tt.want)
			}
		})
	}
}

// What the relay is told.
func TestJudge(t *testing.T) {
	files := map[string]string{"known.v1.json": `{"type":"object","required":["a"]}`}
	strict := func(c *Config) { c.Missing = Quarantine }
	lax := func(c *Config) { c.Unknown = Pass }
	json := func(ref, payload string) *relay.Event {
		return &relay.Event{ID: "1", SchemaRef: ref, Payload: []byte(payload)}
	}
	for _, tt := range []struct {
		name   string
		change func(*Config)
		event  *relay.Event
		code   string // "": it passes
		says   string
	}{
		{"keeps it", strict, json("known.v1", `{"a":1}`), "", ""},
		{"breaks it", lax, json("known.v1", `{}`), "SCHEMA_INVALID", "breaks the contract known.v1: /a is missing"},
		{"unknown", strict, json("known.v2", `{"a":1}`), "SCHEMA_UNKNOWN", `there is no contract "known.v2": add the schema`},
		{"unknown, passes", lax, json("known.v2", `{`), "", ""},
		{"no schema_ref", strict, json("", `{"a":1}`), "SCHEMA_MISSING", "no schema_ref"},
		{"no schema_ref, passes", lax, json("", `{"a":1}`), "", ""},
		{"tombstone", strict, &relay.Event{SchemaRef: "known.v1"}, "", ""},
		{"tombstone, unknown", strict, &relay.Event{SchemaRef: "known.v2"}, "", ""},
		{"tombstone, no schema_ref", strict, &relay.Event{}, "", ""},
		{"bytes", lax, &relay.Event{SchemaRef: "known.v1", Payload: []byte(`{"a":1}`), Binary: true}, "SCHEMA_INVALID",
			"the payload is not JSON, and the contract"},
		{"bytes, unknown", lax, &relay.Event{SchemaRef: "avro.v1", Payload: []byte{0}, Binary: true}, "", ""},
		{"empty", lax, json("known.v1", ""), "SCHEMA_INVALID", "the payload is empty"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			contracts := load(t, files, tt.change)
			out := contracts.Judge(tt.event)
			err := contracts.Check(tt.event)
			var b *Breach
			if (out == nil) != (err == nil) || err != nil && !errors.As(err, &b) {
				t.Fatalf("Judge says %v, Check %v", out, err)
			}
			if tt.code == "" {
				if out != nil {
					t.Errorf("outcome %+v, want it to pass", *out)
				}
				return
			}
			if out == nil {
				t.Fatalf("passes, want %s", tt.code)
			}
			if out.Kind != relay.Reject || out.Code != tt.code || !strings.Contains(out.Message, tt.says) ||
				out.Message != err.Error() {
				t.Errorf("outcome %+v, want a reject as %s that says %q", *out, tt.code, tt.says)
			}
			if b.Code != tt.code || b.SchemaRef != tt.event.SchemaRef {
				t.Errorf("breach %+v, want %s of %q", b, tt.code, tt.event.SchemaRef)
			}
		})
	}
}

// Whatever breaks the contract, the message shows nothing of what the payload says.
func TestMessagesShowNoValues(t *testing.T) {
	for _, schema := range []string{
		`{"type":"null"}`, `{"const":1}`, `{"enum":[1]}`, `{"format":"email"}`, `{"format":"date-time"}`,
		`{"format":"regex"}`, `{"format":"ipv4"}`, `{"pattern":"^$"}`,
		`{"maxLength":1}`, `{"not":{}}`, `false`, `{"anyOf":[{"const":1},{"maxLength":1}]}`, `{"oneOf":[{},{}]}`,
	} {
		got := breach(t, schema, `"secret:[ 1"`)
		if got == "" || strings.Contains(got, "secret") {
			t.Errorf("%s: %q", schema, got)
		}
	}
	for _, number := range []string{`{"maximum":1}`, `{"exclusiveMaximum":1}`, `{"minimum":99999}`,
		`{"exclusiveMinimum":99999}`,
		`{"multipleOf":7}`} {
		got := breach(t, number, `31337`)
		if got == "" || strings.Contains(got, "31337") {
			t.Errorf("%s: %q", number, got)
		}
	}
}

// One set of contracts, many goroutines.
func TestCheckConcurrently(t *testing.T) {
	contracts := load(t,
		map[string]string{"s.json": `{"properties":{"n":{"maximum":5},"l":{"items":{"propertyNames":{"pattern":"^x"}}}}}`})
	done := make(chan error)
	for g := range 8 {
		go func() {
			var err error
			for i := range 200 {
				n := (g + i) % 10
				got := contracts.Check(&relay.Event{SchemaRef: "s", Payload: fmt.Appendf(nil, `{"n":%d,"l":[{"x":1}]}`, n)})
				if (got == nil) != (n <= 5) {
					err = fmt.Errorf("n = %d: %w", n, got)
				}
			}
			done <- err
		}()
	}
	for range 8 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// Whatever the payload: an answer, and the same one twice.
func FuzzCheck(f *testing.F) {
	contracts := load(f, map[string]string{"s.json": `{
		"type": ["object", "array", "string", "number"], "required": ["id"], "additionalProperties": false, "not": {"const": 0},
		"properties": {
			"id": {"type": "string", "format": "uuid", "pattern": "^[0-9a-f-]+$"},
			"n": {"type": "integer", "minimum": -5, "maximum": 1e30, "multipleOf": 3},
			"l": {"uniqueItems": true, "maxItems": 30, "contains": {"minimum": 1},
				"items": {"anyOf": [{"$ref": "#"}, {"type": "null"}, {"const": {"a": 1}}]}},
			"p": {"propertyNames": {"maxLength": 2}},
			"o": {"oneOf": [{"properties": {"k": {"const": 1}}}, {"properties": {"k": {"enum": [2, "x"]}}}]}
		},
		"patternProperties": {"^x-": {"format": "date-time"}}, "dependentRequired": {"n": ["l"]},
		"if": {"required": ["l"]}, "then": {"minProperties": 2}
	}`})
	for _, payload := range []string{
		`{"id":"0197","n":12345678901234567890,"l":[null,{"id":"x"},1e5],"p":{"abc":1},"o":{"k":3},"x-a":"y"}`,
		`[1,1e999999999]`,
		`"x"`, `-0.0e-0`, `{"id":1,"id":2}`, "\xff", "",
		`{"l":[1,1.0,10e-1]}`, `{"p":{"a":1,"bcd":{"efg":1}}}`,
	} {
		f.Add([]byte(payload))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		e := &relay.Event{SchemaRef: "s", Payload: payload}
		first, again := contracts.Check(e), contracts.Check(e)
		if fmt.Sprint(first) != fmt.Sprint(again) {
			t.Fatalf("%q: %v, and then %v", payload, first, again)
		}
		var b *Breach
		if first != nil && (!errors.As(first, &b) || len(b.Fields) == 0 || first.Error() == "") {
			t.Fatalf("%q: %v without a field", payload, first)
		}
	})
}

func BenchmarkJudge(b *testing.B) {
	contracts := load(b, map[string]string{"case.v1.json": `{
		"type": "object", "required": ["caseId", "amount", "items"],
		"properties": {
			"caseId": {"type": "string"}, "amount": {"type": "integer", "minimum": 0},
				"note": {"type": "string", "maxLength": 1000},
			"items": {"type": "array", "items": {"type": "object", "required": ["sku", "n"],
				"properties": {"sku": {"type": "string"}, "n": {"type": "integer", "minimum": 1},
					"price": {"type": "number"}}}},
			"customer": {"type": "object", "properties": {"id": {"type": "string"}, "name": {"type": "string"}}}
		}}`})
	e := &relay.Event{SchemaRef: "case.v1", Payload: []byte(`{"caseId":"CASE-1","amount":12345678901234567890,` +
		`"items":[{"sku":"A-1","n":2,"price":9.90},{"sku":"B-2","n":1,"price":19.00}],` +
		`"customer":{"id":"C-77","name":"Zażółć Gęślą","tags":["a","b",null,true]},"note":"` + strings.Repeat("x", 200) + `"}`)}
	b.ReportAllocs()
	for b.Loop() {
		if out := contracts.Judge(e); out != nil {
			b.Fatal(out.Message)
		}
	}
}
