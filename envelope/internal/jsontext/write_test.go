package jsontext

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestAppendString(t *testing.T) {
	for _, tt := range []struct{ text, want, pairs string }{
		{"", `""`, ""},
		{"plain", `"plain"`, ""},
		{`"\/`, `"\"\\/"`, ""},
		{"\b\f\n\r\t", `"\b\f\n\r\t"`, ""},
		{"\x00\x01\x1f\x7f", "\"\\u0000\\u0001\\u001F\x7f\"", ""},
		{"<&>\u2028żółć\uffff", "\"<&>\u2028żółć\uffff\"", ""},
		{"a😀b", `"a😀b"`, `"a\uD83D\uDE00b"`},
		{"\U00010000\U0010FFFF", "\"\U00010000\U0010FFFF\"", `"\uD800\uDC00\uDBFF\uDFFF"`},
		{"a\xffb\xc3", "\"a\ufffdb\ufffd\"", ""},
		{"\xed\xa0\x80", "\"\ufffd\ufffd\ufffd\"", ""}, // half a pair of surrogates in UTF-8
		{"\ufffd", "\"\ufffd\"", ""},
	} {
		if tt.pairs == "" {
			tt.pairs = tt.want
		}
		if got := string(AppendString([]byte("x"), tt.text)); got != "x"+tt.want {
			t.Errorf("%q: %s, want %s", tt.text, got[1:], tt.want)
		}
		if got := string(AppendString(nil, []byte(tt.text))); got != tt.want {
			t.Errorf("bytes %q: %s, want %s", tt.text, got, tt.want)
		}
		if got := string(AppendStringPairs(nil, tt.text)); got != tt.pairs {
			t.Errorf("pairs %q: %s, want %s", tt.text, got, tt.pairs)
		}
	}
}

func TestObject(t *testing.T) {
	if got, want := string(NewObject(0).Close()), "{}"; got != want {
		t.Errorf("empty: %s, want %s", got, want)
	}
	o := NewObject(1)
	o.String(`n"`, "ż")
	o.Int("min", -1<<63)
	o.Raw("raw", []byte(" [1 , 2.0] "))
	o.Time("at", time.Date(2026, 7, 3, 4, 20, 13, 100_000_999, time.FixedZone("", 7200)))
	o.Base64("data", []byte{0xFB, 0xFF, 0})
	o.Base64("none", nil)
	const want = `{"n\"":"ż","min":-9223372036854775808,"raw": [1 , 2.0] ,"at":"2026-07-03T02:20:13.100000Z","data":"+/8A","none":""}`
	if got := string(o.Close()); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

// Whatever the text: valid JSON that says the same, by Go's own decoder.
func FuzzAppendString(f *testing.F) {
	for _, text := range []string{"", `"\`, "\x00\x7f", "😀", "\xff\xed\xa0\x80", "żółć\u2028"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		comparable := func(s string) string {
			if utf8.ValidString(text) {
				return s
			}
			return strings.ReplaceAll(strings.ToValidUTF8(s, ""), "\ufffd", "") // what was not valid has become U+FFFD
		}
		for name, got := range map[string][]byte{"string": AppendString(nil, text), "pairs": AppendStringPairs(nil, text),
			"bytes": AppendString(nil, []byte(text))} {
			if err := Check(got); err != nil {
				t.Fatalf("%s: %v: %q", name, err, got)
			}
			var said string
			if err := json.Unmarshal(got, &said); err != nil {
				t.Fatal(err)
			}
			if comparable(said) != comparable(text) {
				t.Fatalf("%s: says %q, want %q", name, said, text)
			}
			if Unquote(got) != said {
				t.Fatalf("%s: Unquote says %q, want %q", name, Unquote(got), said)
			}
		}
	})
}
