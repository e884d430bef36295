package config

import (
	"errors"
	"fmt"
	"strings"
)

// expanded is a scalar's text after the environment was filled in.
type expanded struct {
	text string
	// whole says that the scalar was nothing but one ${NAME} without a default: no part of it stands in the file.
	whole bool
	// names are the variables that it was made of.
	names []string
}

// expand replaces ${NAME} and ${NAME:-default} in a scalar. As in a shell, the default also stands in for a variable that is
// set but empty. $${ is a literal ${; a $ that no brace follows is a $. Defaults are not expanded again. Errors never
// quote the text: it may be half of a secret.
func expand(text string, lookup func(string) (string, bool)) (expanded, error) {
	var out strings.Builder
	e := expanded{}
	rest := text
	for {
		at := strings.Index(rest, "${")
		if at < 0 {
			out.WriteString(rest)
			break
		}
		if at > 0 && rest[at-1] == '$' {
			out.WriteString(rest[:at-1] + "${")
			rest = rest[at+2:]
			continue
		}
		out.WriteString(rest[:at])
		inner, after, closed := strings.Cut(rest[at+2:], "}")
		if !closed {
			return e, errors.New("a ${ is not closed: write ${NAME}, or $${ for the characters themselves")
		}
		name, fallback, hasDefault := strings.Cut(inner, ":-")
		if !validVariable(name) {
			return e, errors.New("a ${ } holds no name of a variable: write ${NAME} or ${NAME:-default}, with letters, digits and _")
		}
		value, set := lookup(name)
		if hasDefault && value == "" {
			value, set = fallback, true
		}
		if !set {
			return e, fmt.Errorf("the environment variable %s is not set: set it, or write ${%s:-default}", name, name)
		}
		e.names = append(e.names, name)
		e.whole = at == 0 && after == "" && !hasDefault && len(e.names) == 1
		out.WriteString(value)
		rest = after
	}
	e.text = out.String()
	return e, nil
}

func validVariable(name string) bool {
	for i, c := range []byte(name) {
		switch {
		case c == '_', c >= 'A' && c <= 'Z', c >= 'a' && c <= 'z', i > 0 && c >= '0' && c <= '9':
		default:
			return false
		}
	}
	return name != ""
}

// shorten keeps what a message quotes to a line.
func shorten(s string) string {
	const limit = 60
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + "…"
}
