package jsontext

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for _, text := range []string{
		"null", " true ", "\tfalse\n", "-0", "0", "1.50E+10", "12345678901234567890123", `""`,
		`"a\"b\\\u00e9\ud83d\ude00\ud800"`, "[]", " [ ] ", "{}", "{ }",
		` { "a" : [ 1 , { "b" : null } , "x" ] , "c" : { } } `, `{"a":1,"a":2}`, `{"":{"":[[[]]]}}`, `["]","}",",",":","\\"]`,
		strings.Repeat("[", MaxDepth) + strings.Repeat("]", MaxDepth),
	} {
		got, err := Parser{}.Parse([]byte(text))
		if err != nil {
			t.Errorf("%.40q: %v", text, err)
		}
		if want := decode(t, text); !reflect.DeepEqual(got, want) {
			t.Errorf("%.40q: %#v, want %#v", text, got, want)
		}
	}
}

// decode is Go's own decoder.
func decode(t testing.TB, text string) (value any) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&value); err != nil {
		t.Fatal(err)
	}
	return value
}

func TestParseUnique(t *testing.T) {
	for text, want := range map[string]string{
		`{"a":1,"a":1}`: "/a", `{"a":{"b/~":1,"c":[0,{"d":1,"\u0064":2}]}}`: "/a/c/1/d",
		`[{"x~y/":{"x":1,"x":{}}}]`: "/0/x~0y~1/x", `{"":1,"":2}`: "/",
	} {
		_, err := Parser{Unique: true}.Parse([]byte(text))
		var duplicate *DuplicateError
		if !errors.As(err, &duplicate) || duplicate.Pointer != want {
			t.Errorf("%s: error %v, want a duplicate %s", text, err, want)
		}
		if _, err := (Parser{}).Parse([]byte(text)); err != nil {
			t.Errorf("%s: %v without Unique", text, err)
		}
	}
	for _, text := range []string{`{"a":1,"A":1}`, `[{"a":1},{"a":1}]`, `{"a":{"a":{"a":1}}}`, `["a","a"]`} {
		if _, err := (Parser{Unique: true}).Parse([]byte(text)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestParseSeen(t *testing.T) {
	var seen []string
	p := Parser{Seen: func(container any, text []byte) { seen = append(seen, fmt.Sprintf("%T %s", container, text)) }}
	if _, err := p.Parse([]byte(` { "a" : [ 1, {} ] ,"b":[]} `)); err != nil {
		t.Fatal(err)
	}
	want := []string{"map[string]interface {} {}", "[]interface {} [ 1, {} ]", "[]interface {} []",
		`map[string]interface {} { "a" : [ 1, {} ] ,"b":[]}`}
	if !reflect.DeepEqual(seen, want) {
		t.Errorf("seen %q, want %q", seen, want)
	}
}

// Whatever is valid is read as Go's own decoder reads it, and each container is what its text says.
func FuzzParse(f *testing.F) {
	for _, text := range []string{`{"a":[1,-0.5e+3,{"b":null}],"c":"\ud83d\ude00\u0000","a":true}`, "[[],{},\"\"]", " 1 ",
		"\"\xff\"", `{"a":1,"\u0061":2}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if Check(text) != nil {
			return
		}
		p := Parser{Seen: func(container any, part []byte) {
			if !reflect.DeepEqual(container, decode(t, string(part))) {
				t.Fatalf("%v is not what %q says", container, part)
			}
		}}
		if len(text) > 1000 {
			p.Seen = nil // every level is decoded again
		}
		got, err := p.Parse(bytes.Clone(text))
		if err != nil {
			t.Fatal(err)
		}
		if want := decode(t, string(text)); !reflect.DeepEqual(got, want) {
			t.Fatalf("%#v, want %#v", got, want)
		}
	})
}
