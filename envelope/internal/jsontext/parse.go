package jsontext

import (
	"bytes"
	"encoding/json"
	"strings"
)

// Parse makes a value of JSON text that has passed Check: nil, bool, string, json.Number, []any or map[string]any. Of several
// members with one name the last is taken. seen, if not nil, is told of each object and array with the text that it was made
// of.
func Parse(text []byte, seen func(container any, text []byte)) any {
	r := reader{text: text, tell: seen}
	r.space()
	return r.value()
}

// reader reads text that is known to be valid, so it never asks what else might be there.
type reader struct {
	text []byte
	at   int
	tell func(container any, text []byte)
}

func (r *reader) value() any {
	switch r.text[r.at] {
	case '{':
		return r.object()
	case '[':
		return r.array()
	case '"':
		return r.string()
	case 't':
		r.at += len("true")
		return true
	case 'f':
		r.at += len("false")
		return false
	case 'n':
		r.at += len("null")
		return nil
	}
	from := r.at
	for r.at < len(r.text) && strings.IndexByte("+-.eE0123456789", r.text[r.at]) >= 0 {
		r.at++
	}
	return json.Number(r.text[from:r.at])
}

func (r *reader) object() any {
	from, members := r.at, map[string]any{}
	for r.at++; r.more('}'); {
		name := r.string()
		r.space()
		r.at++ // the colon
		r.space()
		members[name] = r.value()
	}
	r.seen(members, from)
	return members
}

func (r *reader) array() any {
	from, items := r.at, []any{}
	for r.at++; r.more(']'); {
		items = append(items, r.value())
	}
	r.seen(items, from)
	return items
}

// more steps to the next member or item, or over the end.
func (r *reader) more(end byte) bool {
	r.space()
	switch r.text[r.at] {
	case end:
		r.at++
		return false
	case ',':
		r.at++
		r.space()
	}
	return true
}

func (r *reader) seen(container any, from int) {
	if r.tell != nil {
		r.tell(container, r.text[from:r.at:r.at])
	}
}

func (r *reader) space() {
	for r.at < len(r.text) && IsSpace(r.text[r.at]) {
		r.at++
	}
}

func (r *reader) string() string {
	from := r.at
	r.at += StringLen(r.text[from:])
	return Unquote(r.text[from:r.at])
}

// IsSpace tells what may stand between the parts of JSON.
func IsSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }

// StringLen returns the length of the string, quotes included, that valid JSON text begins with.
func StringLen(text []byte) int {
	for i := 1; ; {
		switch text[i] {
		case '"':
			return i + 1
		case '\\':
			i += 2
		default:
			i++
		}
	}
}

// Unquote returns what a valid string says. A surrogate without its other half becomes U+FFFD.
func Unquote(text []byte) string {
	inner := text[1 : len(text)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return string(inner)
	}
	var s string
	_ = json.Unmarshal(text, &s) // valid, so it has no error
	return s
}
