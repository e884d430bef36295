package jsontext

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// Parser makes values of JSON text: nil, bool, string, json.Number, []any and map[string]any. The zero value takes the last of
// several members with one name.
type Parser struct {
	// Unique refuses an object with two members of one name: what such an object says depends on who reads it.
	Unique bool
	// Seen, if not nil, is told of each object and array with the text that it was made of.
	Seen func(container any, text []byte)
}

// DuplicateError says that an object has two members with one name.
type DuplicateError struct {
	// Pointer is the JSON Pointer (RFC 6901) of the member.
	Pointer string
}

func (e *DuplicateError) Error() string { return fmt.Sprintf("%s is there twice", e.Pointer) }

// within puts an error of an inner value one level lower.
func (e *DuplicateError) within(token string) *DuplicateError {
	return &DuplicateError{"/" + EscapePointer(token) + e.Pointer}
}

// Parse returns the value. The text must have passed Check. The only error is a *DuplicateError.
func (p Parser) Parse(text []byte) (any, error) {
	r := reader{Parser: p, text: text}
	r.space()
	value, duplicate := r.value()
	if duplicate != nil {
		return nil, duplicate
	}
	return value, nil
}

// reader reads text that is known to be valid, so it never asks what else might be there.
type reader struct {
	Parser
	text []byte
	at   int
}

func (r *reader) value() (any, *DuplicateError) {
	switch r.text[r.at] {
	case '{':
		return r.object()
	case '[':
		return r.array()
	case '"':
		return r.string(), nil
	case 't':
		r.at += len("true")
		return true, nil
	case 'f':
		r.at += len("false")
		return false, nil
	case 'n':
		r.at += len("null")
		return nil, nil
	}
	from := r.at
	for r.at < len(r.text) && strings.IndexByte("+-.eE0123456789", r.text[r.at]) >= 0 {
		r.at++
	}
	return json.Number(r.text[from:r.at]), nil
}

func (r *reader) object() (any, *DuplicateError) {
	from, members := r.at, map[string]any{}
	for r.at++; r.more('}'); {
		name := r.string()
		if _, twice := members[name]; twice && r.Unique {
			return nil, &DuplicateError{"/" + EscapePointer(name)}
		}
		r.space()
		r.at++ // the colon
		r.space()
		value, duplicate := r.value()
		if duplicate != nil {
			return nil, duplicate.within(name)
		}
		members[name] = value
	}
	r.seen(members, from)
	return members, nil
}

func (r *reader) array() (any, *DuplicateError) {
	from, items := r.at, []any{}
	for r.at++; r.more(']'); {
		value, duplicate := r.value()
		if duplicate != nil {
			return nil, duplicate.within(strconv.Itoa(len(items)))
		}
		items = append(items, value)
	}
	r.seen(items, from)
	return items, nil
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
	if r.Seen != nil {
		r.Seen(container, r.text[from:r.at:r.at])
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

// EscapePointer makes a name one token of a JSON Pointer (RFC 6901, 3).
func EscapePointer(name string) string {
	if !strings.ContainsAny(name, "~/") {
		return name
	}
	return strings.ReplaceAll(strings.ReplaceAll(name, "~", "~0"), "/", "~1")
}
