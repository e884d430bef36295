// Package jsontext reads and writes JSON as text, so that nothing of it is lost on the way from the log to a destination:
// numbers keep every digit (no float64 in between), members keep their order, and what is only carried along keeps its bytes.
package jsontext

import (
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"
)

// MaxDepth is how deep objects and arrays may be nested.
const MaxDepth = 10_000

// SyntaxError says that a text is not one JSON value in UTF-8.
type SyntaxError struct {
	// Offset is where the fault is, in bytes from the start.
	Offset int64
	// Problem shows nothing of the text itself but, for some faults, one character.
	Problem string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("not valid JSON at byte %d: %s", e.Offset, e.Problem)
}

// Check returns nil for one JSON value (RFC 8259) in UTF-8, nested at most MaxDepth deep; else a *SyntaxError.
func Check(text []byte) error {
	s := scanner{text: text}
	if s.document() {
		return nil
	}
	return explain(text)
}

// explain asks Go's own decoder what is wrong, which takes longer but knows how to say it.
func explain(text []byte) error {
	var syntax *json.SyntaxError
	if err := json.Unmarshal(text, new(json.RawMessage)); errors.As(err, &syntax) {
		return &SyntaxError{syntax.Offset, syntax.Error()}
	}
	at := 0
	for at < len(text) {
		r, size := utf8.DecodeRune(text[at:])
		if r == utf8.RuneError && size == 1 {
			break
		}
		at += size
	}
	return &SyntaxError{int64(at), "not valid UTF-8"}
}
