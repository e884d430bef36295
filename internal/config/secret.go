package config

import (
	"fmt"
	"io"
	"net/url"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Secret is a value that came from the environment. No way of printing it shows it.
type Secret struct{ value string }

const hidden = "(hidden)"

// Reveal returns the secret itself, for the one who signs with it.
func (s Secret) Reveal() string { return s.value }

// IsZero tells whether there is no secret.
func (s Secret) IsZero() bool { return s.value == "" }

// Format hides the secret from every verb of fmt.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, hidden) }

// MarshalText hides the secret from encoders.
func (s Secret) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// MarshalYAML hides the secret from the printed configuration.
func (s Secret) MarshalYAML() (any, error) { return hidden, nil }

// decodeNode takes ${NAME} and nothing else: whatever stands in the file itself is no secret.
func (s *Secret) decodeNode(d *decoder, n *yaml.Node, path string, _ reflect.StructTag) {
	if n.Kind != yaml.ScalarNode {
		d.wrongType(n, path, "the name of a variable, as in ${NAME}")
		return
	}
	e, err := expand(n.Value, d.lookup)
	switch {
	case err == nil && !e.whole:
		d.problem(n, path, path+" is written into the file",
			"a secret comes from "+path[strings.LastIndexByte(path, '.')+1:]+"_file, or from the environment as ${NAME} alone")
	case err != nil:
		d.problem(n, path, path+": "+err.Error(), "")
	case e.text == "":
		d.problem(n, path, path+" is empty"+e.origin(), "set the variable to the secret")
	default:
		s.value = e.text
	}
}

// URL is an address that may hold a password, which no way of printing it shows.
type URL struct{ value string }

// Reveal returns the address with its password.
func (u URL) Reveal() string { return u.value }

// IsZero tells whether there is no address.
func (u URL) IsZero() bool { return u.value == "" }

// String returns the address without its password and without what else in its query is a credential.
func (u URL) String() string {
	parsed, err := url.Parse(u.value)
	if err != nil {
		return hidden
	}
	if _, ok := parsed.User.Password(); ok {
		parsed.User = url.UserPassword(parsed.User.Username(), "xxx")
	}
	query := parsed.Query()
	for name := range query {
		if isCredential(name) {
			query.Set(name, "xxx")
		}
	}
	parsed.RawQuery = query.Encode()
	return parsed.String()
}

// isCredential tells whether a parameter of an address is to be kept secret, going by its name.
func isCredential(name string) bool {
	name = strings.ToLower(name)
	if name == "sslkey" || name == "passfile" { // paths of PostgreSQL
		return false
	}
	for _, word := range []string{"pass", "pwd", "secret", "token", "key", "sig", "auth"} {
		if strings.Contains(name, word) {
			return true
		}
	}
	return false
}

// Format hides the password from every verb of fmt.
func (u URL) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, u.String()) }

// MarshalText hides the password from encoders.
func (u URL) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// MarshalYAML hides the password from the printed configuration.
func (u URL) MarshalYAML() (any, error) { return u.String(), nil }

// decodeNode takes an address of one of the tag's schemes. A password in it must come from the environment.
func (u *URL) decodeNode(d *decoder, n *yaml.Node, path string, tag reflect.StructTag) {
	e, ok := d.scalar(n, path, "an address")
	if !ok {
		return
	}
	if where := literalCredential(n.Value); where != "" {
		d.problem(n, path, fmt.Sprintf("%s has a %s written into the file", path, where),
			"take it from the environment, as in ${NAME}, or from a file")
		return
	}
	schemes := strings.Split(tag.Get("schemes"), ",")
	parsed, err := url.Parse(e.text) // its errors quote the whole address, password included
	switch {
	case err != nil:
		d.problem(n, path, path+" is no valid address"+e.origin(),
			"write it as "+schemes[0]+"://…, with special characters in a password percent-encoded")
	case !slices.Contains(schemes, parsed.Scheme):
		d.problem(n, path, fmt.Sprintf("%s does not begin with %s://%s", path, strings.Join(schemes, ":// or "), e.origin()),
			"write the whole address")
	case strings.HasPrefix(parsed.Scheme, "http") && parsed.Host == "":
		d.problem(n, path, path+" names no host"+e.origin(), "write "+parsed.Scheme+"://host/path")
	case parsed.Fragment != "":
		d.problem(n, path, path+" has a fragment (#…), which is never sent"+e.origin(), "take it out, or percent-encode the # as %23")
	default:
		u.value = e.text
	}
}

// literalCredential tells what secret the part of an address holds that is written in the file: "" when there is none.
func literalCredential(text string) string {
	nothing := func(string) (string, bool) { return "", true }
	literal, err := expand(text, nothing)
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(literal.text, "://")
	rest, query, _ := strings.Cut(rest, "?")
	authority, _, _ := strings.Cut(rest, "/")
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		if _, password, _ := strings.Cut(authority[:at], ":"); password != "" {
			return "password"
		}
	}
	for pair := range strings.SplitSeq(query, "&") {
		if name, value, _ := strings.Cut(pair, "="); value != "" && isCredential(name) {
			return "credential (" + name + ")"
		}
	}
	return ""
}
