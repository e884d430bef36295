package jsontext

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestCheck(t *testing.T) {
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for _, text := range []string{
		"null", " true ", "\t0\n", "-0", "1e400", "12345678901234567890123", `""`, `"\ud800"`, `"\u0000"`, `"żółć 😀"`, "[]",
		"{}", `{"a":1,"a":2}`, deep(MaxDepth),
	} {
		if err := Check([]byte(text)); err != nil {
			t.Errorf("%.40q: %v", text, err)
		}
	}
	for text, offset := range map[string]int64{
		"": 0, " ": 1, "nul": 3, "nil": 2, "01": 2, "1 2": 3, "+1": 1, ".5": 1, "1.": 2, "NaN": 1, `"a`: 2, "\"\n\"": 2,
		`"\x"`: 3, "[1,]": 4, `{"a":1,}`: 8, `{a:1}`: 2,
		"[1]]": 4, "\ufeff1": 1, "\"\xff\"": 1, "\"é\xc3\"": 3, deep(MaxDepth + 1): MaxDepth + 1,
	} {
		err := Check([]byte(text))
		var syntax *SyntaxError
		if !errors.As(err, &syntax) {
			t.Errorf("%.40q: error %v, want a syntax error", text, err)
			continue
		}
		if syntax.Offset != offset {
			t.Errorf("%.40q: %v, want it at byte %d", text, err, offset)
		}
	}
}

// The same texts are valid as for Go's own decoder, and UTF-8 besides.
func FuzzCheck(f *testing.F) {
	for _, text := range []string{
		`{"a":[1,-0.5e+3,{"b":null}],"c":"\ud83d\u00aF\/","a":true}`, "[[],{},\"\"]", " 1 ", "\"\xff\"",
		`{"a" : false , "b":[ ] }`, "-", "1e", "0.", "00",
		"[1,]", `{"a":}`, "[}", "tru", `"\u12`, "\"\x1f\"", "\x00", "[1 2]", `{"a":1 "b":2}`, `{1:2}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		err := Check(text)
		if want := json.Valid(text) && utf8.Valid(text); (err == nil) != want {
			t.Fatalf("%q: error %v, want it valid: %v", text, err, want)
		}
	})
}

func BenchmarkCheck(b *testing.B) {
	text := []byte(`{"caseId":"CASE-1","amount":12345678901234567890,"items":[{"sku":"A-1","n":2,"price":9.90},{"sku":"B-2","n":1,"price":19.00}],` +
		`"customer":{"id":"C-77","name":"Zażółć Gęślą","tags":["a","b",null,true]},"note":"` + strings.Repeat("x", 200) + `"}`)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if err := Check(text); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParse(b *testing.B) {
	text := []byte(`{"caseId":"CASE-1","amount":12345678901234567890,"items":[{"sku":"A-1","n":2,"price":9.90}],"note":"` +
		strings.Repeat("x", 200) + `"}`)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		Parse(text, nil)
	}
}
