package contract

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits on a number, so that comparing it exactly stays cheap.
const (
	maxNumberLength = 1000
	maxExponent     = 1000
)

// Field is what is wrong with one place of a payload.
type Field struct {
	// Pointer is its JSON Pointer (RFC 6901); "" is the whole.
	Pointer string
	// Problem shows nothing of what the place says.
	Problem string
}

// String is one line. A pointer that is long is cut, and what is not printable in it escaped.
func (f Field) String() string {
	const most = 200
	at := f.Pointer
	switch quoted := strconv.Quote(at); {
	case at == "":
		at = "the payload"
	case len(at) > most:
		at = quoted[:most] + `…"`
	case strings.ContainsFunc(at, func(r rune) bool { return !unicode.IsPrint(r) }):
		at = quoted
	}
	return at + " " + f.Problem
}

// decode reads JSON exactly: numbers as json.Number. It refuses what readers take differently.
func decode(text []byte) (any, *Field) {
	if !utf8.Valid(text) {
		return nil, &Field{"", "is not valid UTF-8"}
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, notJSON(err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, &Field{"", "is not JSON: there is more after the first value"}
	}
	members := 0
	if fault := inspect(value, &members); fault != nil {
		return nil, fault
	}
	if countNames(text) != members { // of two members with one name just one got into the value
		return nil, findTwin(text)
	}
	return value, nil
}

func notJSON(err error) *Field {
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &syntax):
		return &Field{"", fmt.Sprintf("is not JSON at byte %d: %v", syntax.Offset, syntax)}
	case errors.Is(err, io.EOF):
		return &Field{"", "is empty"}
	}
	return &Field{"", "is not JSON: " + err.Error()}
}

// inspect counts the members of all objects, and refuses numbers that are too long.
func inspect(value any, members *int) *Field {
	switch v := value.(type) {
	case json.Number:
		if tooLong(string(v)) {
			return &Field{"", fmt.Sprintf("is a number of more than %d characters or with an exponent beyond ±%d",
				maxNumberLength, maxExponent)}
		}
	case []any:
		for i, item := range v {
			if fault := inspect(item, members); fault != nil {
				return fault.within(strconv.Itoa(i))
			}
		}
	case map[string]any:
		*members += len(v)
		for name, member := range v {
			if fault := inspect(member, members); fault != nil {
				return fault.within(name)
			}
		}
	}
	return nil
}

func tooLong(number string) bool {
	if len(number) > maxNumberLength {
		return true
	}
	at := strings.IndexAny(number, "eE")
	if at < 0 {
		return false
	}
	exponent, err := strconv.Atoi(number[at+1:])
	return err != nil || exponent > maxExponent || exponent < -maxExponent
}

// within says the same of the value that holds it.
func (f *Field) within(token string) *Field { return &Field{pointer(token) + f.Pointer, f.Problem} }

// pointer makes a JSON Pointer of unescaped tokens.
func pointer(tokens ...string) string {
	var b strings.Builder
	for _, token := range tokens {
		b.WriteByte('/')
		b.WriteString(strings.ReplaceAll(strings.ReplaceAll(token, "~", "~0"), "/", "~1"))
	}
	return b.String()
}

// countNames counts the members in a valid text: each has one colon.
func countNames(text []byte) (n int) {
	inString := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case c == ':' && !inString:
			n++
		}
	}
	return n
}

// findTwin finds the second of two members with one name. The text is valid.
func findTwin(text []byte) *Field {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if fault := twinIn(decoder); fault != nil {
		return fault
	}
	return &Field{"", "has two members of one name"}
}

func twinIn(decoder *json.Decoder) *Field {
	start, err := decoder.Token()
	if err != nil {
		return nil
	}
	switch start {
	case json.Delim('['):
		for i := 0; decoder.More(); i++ {
			if fault := twinIn(decoder); fault != nil {
				return fault.within(strconv.Itoa(i))
			}
		}
	case json.Delim('{'):
		names := map[string]bool{}
		for decoder.More() {
			token, _ := decoder.Token()
			name, _ := token.(string)
			if names[name] {
				return &Field{pointer(name), "is there twice"}
			}
			names[name] = true
			if fault := twinIn(decoder); fault != nil {
				return fault.within(name)
			}
		}
	default:
		return nil
	}
	_, _ = decoder.Token() // the end
	return nil
}
