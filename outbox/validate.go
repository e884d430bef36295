package outbox

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// InvalidError says that events cannot be written as they are. Nothing was written.
type InvalidError struct {
	// Problems are all that was found, by event and field.
	Problems []Problem
}

// Problem is one thing that is wrong with an event. No text of it shows what the event says, which may be a secret.
type Problem struct {
	// Event is the event's place in the call, from 0.
	Event int
	// Field is the name of a field of Event, for headers with the header's name: Headers[x-tenant].
	Field string
	// Problem says what is wrong, and Hint what to do about it.
	Problem string
	Hint    string
}

func (p Problem) String() string {
	return fmt.Sprintf("event %d: %s %s: %s", p.Event, p.Field, p.Problem, p.Hint)
}

// Error lists the first 20 problems.
func (e *InvalidError) Error() string {
	const most = 20
	var b strings.Builder
	fmt.Fprintf(&b, "nothing was enqueued, %d problems:", len(e.Problems))
	for _, p := range e.Problems[:min(most, len(e.Problems))] {
		b.WriteString("\n  " + p.String())
	}
	if more := len(e.Problems) - most; more > 0 {
		fmt.Fprintf(&b, "\n  and %d more", more)
	}
	return b.String()
}

// flaw is what is wrong with a value; nil: nothing is.
type flaw struct{ problem, hint string }

// Limits that are not an option: what indexes and headers take, and what PostgreSQL's and SQLite's JSON parsers nest.
const (
	maxTextBytes = 255
	maxJSONDepth = 512
)

// Check tells what Enqueue would refuse, without writing anything: an *InvalidError with all problems, or nil.
func (o *Outbox) Check(events ...Event) error { return o.check(events) }

// check looks at everything and returns an *InvalidError with all problems, or nil.
func (o *Outbox) check(events []Event) error {
	var problems []Problem
	for i := range events {
		o.checkEvent(&events[i], func(field string, f *flaw) {
			if f != nil {
				problems = append(problems, Problem{i, field, f.problem, f.hint})
			}
		})
	}
	if problems == nil {
		return nil
	}
	return &InvalidError{problems}
}

func (o *Outbox) checkEvent(e *Event, report func(field string, f *flaw)) {
	report("ID", idProblem(e.ID))
	report("Topic", nameProblem(e.Topic, true))
	report("Key", keyProblem(e.Key))
	report("AggregateType", nameProblem(e.AggregateType, false))
	report("AggregateID", keyProblem(e.AggregateID))
	report("AggregateVersion", rangeProblem(e.AggregateVersion, math.MaxInt64))
	report("Type", nameProblem(e.Type, true))
	report("Version", rangeProblem(int64(e.Version), math.MaxInt32))
	report("SchemaRef", nameProblem(e.SchemaRef, false))
	o.checkPayload(e, report)
	o.checkHeaders(e.Headers, report)
	report("DedupKey", keyProblem(e.DedupKey))
	if year := e.AvailableAt.Year(); !e.AvailableAt.IsZero() && (year < 1970 || year > 9999) {
		report("AvailableAt", &flaw{fmt.Sprintf("is in the year %d", year), "use a time from 1970 to 9999, or none"})
	}
}

// idProblem: an id goes into headers of every kind as it is.
func idProblem(id string) *flaw {
	if f := lengthProblem(id); f != nil {
		return f
	}
	for i := range len(id) {
		if id[i] <= ' ' || id[i] > '~' {
			return &flaw{fmt.Sprintf("has at byte %d what is not visible ASCII", i),
				"use letters, digits and punctuation, or leave it empty for a new UUID"}
		}
	}
	return nil
}

// keyProblem is about texts that the service makes up freely.
func keyProblem(text string) *flaw {
	switch {
	case !utf8.ValidString(text):
		return &flaw{"is not valid UTF-8", "encode it, for example as hexadecimal text"}
	case strings.IndexByte(text, 0) >= 0:
		return &flaw{"holds a NUL character, which databases refuse in text", "remove it"}
	}
	return lengthProblem(text)
}

// nameProblem is about texts that name something, and may go into headers.
func nameProblem(text string, required bool) *flaw {
	if text == "" && required {
		return &flaw{"is empty", "every event has one"}
	}
	for i := range len(text) {
		if isControl(text[i]) {
			return &flaw{fmt.Sprintf("has a control character at byte %d", i), "remove it"}
		}
	}
	return keyProblem(text)
}

func lengthProblem(text string) *flaw {
	if len(text) <= maxTextBytes {
		return nil
	}
	return &flaw{fmt.Sprintf("is %d bytes long", len(text)),
		fmt.Sprintf("use at most %d, for example a hash of it", maxTextBytes)}
}

func rangeProblem(n, most int64) *flaw {
	if n >= 0 && n <= most {
		return nil
	}
	return &flaw{fmt.Sprintf("is %d", n), fmt.Sprintf("use a number from 0 to %d", most)}
}

// isControl: of ASCII; the other bytes of a rune in UTF-8 are all above.
func isControl(c byte) bool { return c < ' ' || c == 0x7f }

func (o *Outbox) checkPayload(e *Event, report func(field string, f *flaw)) {
	if e.Payload != nil && e.PayloadBytes != nil {
		report("PayloadBytes", &flaw{"is set beside Payload", "set one of them: Payload for JSON, PayloadBytes for anything else"})
	}
	if e.Payload != nil {
		f := o.sizeProblem(len(e.Payload))
		if f == nil {
			f = jsonProblem(e.Payload)
		}
		report("Payload", f)
	}
	report("PayloadBytes", o.sizeProblem(len(e.PayloadBytes)))
}

func (o *Outbox) sizeProblem(n int) *flaw {
	if n <= o.opts.MaxPayloadBytes {
		return nil
	}
	return &flaw{fmt.Sprintf("has %d bytes, more than the limit of %d", n, o.opts.MaxPayloadBytes),
		"store the big part elsewhere and send where it is, or raise Options.MaxPayloadBytes and the destinations' limits"}
}

func jsonProblem(text json.RawMessage) *flaw {
	if !json.Valid(text) {
		syntax := &json.SyntaxError{}
		errors.As(json.Unmarshal(text, new(json.RawMessage)), &syntax) // for the place
		return &flaw{fmt.Sprintf("is not valid JSON from byte %d on", syntax.Offset),
			"make it with encoding/json, or leave it nil for a tombstone; PayloadBytes is for what is not JSON"}
	}
	if !utf8.Valid(text) {
		return &flaw{"is not valid UTF-8", "JSON is UTF-8: convert it, or use PayloadBytes"}
	}
	if nestedDeeper(text, maxJSONDepth) {
		return &flaw{fmt.Sprintf("is nested deeper than %d", maxJSONDepth),
			"databases and receivers refuse that: flatten it, or use PayloadBytes"}
	}
	return nil
}

// nestedDeeper tells whether valid JSON has more than a number of levels of objects and arrays.
func nestedDeeper(text []byte, levels int) bool {
	if bytes.Count(text, []byte("["))+bytes.Count(text, []byte("{")) <= levels {
		return false // nearly always
	}
	depth, inString := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '[' || c == '{':
			if depth++; depth > levels {
				return true
			}
		case c == ']' || c == '}':
			depth--
		}
	}
	return false
}

func (o *Outbox) checkHeaders(headers map[string]string, report func(field string, f *flaw)) {
	if len(headers) == 0 {
		return
	}
	if len(headers) > o.opts.MaxHeaders {
		report("Headers", &flaw{fmt.Sprintf("are %d", len(headers)),
			fmt.Sprintf("use at most %d, or raise Options.MaxHeaders", o.opts.MaxHeaders)})
		return // not one problem for each of a million
	}
	size := 0
	var room [8]string
	names := room[:0]
	for name, value := range headers {
		size += len(name) + len(value)
		names = append(names, name)
	}
	if size > o.opts.MaxHeaderBytes {
		report("Headers", &flaw{fmt.Sprintf("have %d bytes together, more than the limit of %d", size, o.opts.MaxHeaderBytes),
			"move what is big into the payload, or raise Options.MaxHeaderBytes"})
	}
	slices.Sort(names)
	for i, name := range names {
		if f := cmp.Or(headerNameProblem(name), o.headerValueProblem(headers[name]), twinProblem(names[:i], name)); f != nil {
			report(fmt.Sprintf("Headers[%q]", name[:min(len(name), 64)]), f)
		}
	}
}

func headerNameProblem(name string) *flaw {
	switch {
	case name == "":
		return &flaw{"has no name", "give it one"}
	case len(name) > maxTextBytes:
		return lengthProblem(name)
	}
	for i := range len(name) {
		if !isToken(name[i]) {
			return &flaw{fmt.Sprintf("has a name with a character that headers cannot have, at byte %d", i),
				"use letters, digits and !#$%&'*+-.^_`|~"}
		}
	}
	return nil
}

// isToken: tchar of RFC 9110, 5.6.2.
func isToken(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}

func (o *Outbox) headerValueProblem(value string) *flaw {
	switch {
	case len(value) > o.opts.MaxHeaderValueBytes:
		return &flaw{fmt.Sprintf("has a value of %d bytes, more than the limit of %d", len(value), o.opts.MaxHeaderValueBytes),
			"move it into the payload, or raise Options.MaxHeaderValueBytes"}
	case !utf8.ValidString(value):
		return &flaw{"has a value that is not valid UTF-8", "encode it, for example in Base64"}
	}
	for i := range len(value) {
		if isControl(value[i]) && value[i] != '\t' {
			return &flaw{fmt.Sprintf("has a value with a control character at byte %d", i),
				"remove it (a line break would start another header), or encode the value"}
		}
	}
	return nil
}

// twinProblem: receivers do not tell upper from lower case in the names of headers.
func twinProblem(others []string, name string) *flaw {
	for _, other := range others {
		if strings.EqualFold(other, name) {
			return &flaw{fmt.Sprintf("differs only in case from %q", other), "keep one of them"}
		}
	}
	return nil
}
