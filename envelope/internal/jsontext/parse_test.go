package jsontext

import (
	"bytes"
	"encoding/json"
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
		got := Parse([]byte(text), nil)
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

func TestParseSeen(t *testing.T) {
	var seen []string
	Parse([]byte(` { "a" : [ 1, {} ] ,"b":[]} `), func(container any, text []byte) {
		seen = append(seen, fmt.Sprintf("%T %s", container, text))
	})
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
		got := Parse(bytes.Clone(text), func(container any, part []byte) {
			if len(text) < 1000 && !reflect.DeepEqual(container, decode(t, string(part))) { // every level is decoded again
				t.Fatalf("%v is not what %q says", container, part)
			}
		})
		if want := decode(t, string(text)); !reflect.DeepEqual(got, want) {
			t.Fatalf("%#v, want %#v", got, want)
		}
	})
}
