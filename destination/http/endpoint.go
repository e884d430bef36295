package http

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"unicode"
)

// Endpoint is where one delivery goes, and with which credentials.
type Endpoint struct {
	// URL is https://… or http://…, with a query if need be. A user and a password do not belong into it. Required.
	URL string
	// SecretFiles hold the active signing secrets, one per file; space around it is ignored. The first one makes
	// the sha256-hex signature, all of them the Standard Webhooks signatures, so a rotation is: put the new one
	// second, wait until the receiver knows it, put it first, take the old one out. Required when the destination signs.
	SecretFiles []string
	// TokenFile holds a token for "Authorization: Bearer". Default: none is sent.
	TokenFile string
	// Secret and Token are the same without a file, for a process that has them in its environment. Such a Secret goes before
	// those of SecretFiles, and a Token is for want of a TokenFile.
	Secret, Token string
	// MaxInFlight bounds the deliveries under way to this endpoint. Default: Config.MaxInFlight.
	MaxInFlight int
	// Disabled holds the endpoint's deliveries back. They wait in the log.
	Disabled bool

	parsed *url.URL // of URL, when it is a good one and was parsed already

	// folder, when within is set, is what the files' names are relative to and cannot leave.
	folder string
	within bool
}

// Endpoints finds an endpoint by the name that an event gives. Lookup is called for every event and must not block.
//
// Two optional methods are used when they are there: Refresh(ctx) error, for an endpoint that Lookup does not know yet
// (see Table.Refresh), and Names() []string, so that Check can go through all.
type Endpoints interface {
	Lookup(name string) (Endpoint, bool)
}

type refresher interface {
	Refresh(context.Context) error
}

type namer interface{ Names() []string }

// StaticEndpoints are endpoints by name, out of a configuration.
type StaticEndpoints map[string]Endpoint

// Lookup implements Endpoints.
func (s StaticEndpoints) Lookup(name string) (Endpoint, bool) {
	e, ok := s[name]
	return e, ok
}

// Names returns all names, in order.
func (s StaticEndpoints) Names() []string { return slices.Sorted(maps.Keys(s)) }

// target returns the URL. The errors do not repeat it: an error may not hold what stands in a query or before an @.
func (e *Endpoint) target() (*url.URL, error) {
	if e.parsed != nil {
		return e.parsed, nil
	}
	if e.URL == "" {
		return nil, errors.New("url is empty: set it to the https:// address that takes the events")
	}
	u, err := url.Parse(e.URL)
	switch {
	case err != nil:
		return nil, errors.New("url cannot be parsed: write it like https://host/path and percent-encode what is special")
	case u.User != nil:
		return nil, errors.New("url holds a user: credentials are read from files, set token_file or sign with secret_files")
	case u.Scheme != "https" && u.Scheme != "http":
		return nil, fmt.Errorf("url has the scheme %q: only https and http are spoken here", printable(u.Scheme))
	case u.Hostname() == "":
		return nil, errors.New("url has no host: write it like https://host/path")
	case strings.IndexFunc(u.Host, func(r rune) bool { return r > unicode.MaxASCII }) >= 0:
		return nil, errors.New("url has a host that is not ASCII: write it as xn--…")
	}
	u.Fragment = ""
	return u, nil
}

// prepared saves each delivery to parse the URL again.
func (e Endpoint) prepared() Endpoint {
	e.parsed, _ = e.target() // what is wrong with it is said where it is used
	return e
}

// problems returns what is wrong with the endpoint as it is configured.
func (e *Endpoint) problems(sign Signing) (problems []error) {
	if _, err := e.target(); err != nil {
		problems = append(problems, err)
	}
	if err := e.needsSecret(sign); err != nil {
		problems = append(problems, err)
	}
	if e.hasSecret() && !sign.any() {
		problems = append(problems, errors.New("secret_files are set, but nothing is signed: switch a signature on or take them out"))
	}
	if e.MaxInFlight < 0 {
		problems = append(problems, fmt.Errorf("max_in_flight is %d: it must not be negative", e.MaxInFlight))
	}
	return problems
}

// needsSecret keeps a delivery from going out unsigned.
func (e *Endpoint) needsSecret(sign Signing) error {
	if sign.any() && !e.hasSecret() {
		return errors.New("there is no secret to sign with: set secret_files (secret_file in the table outbox_endpoint)")
	}
	return nil
}

func (e *Endpoint) hasSecret() bool { return e.Secret != "" || len(e.SecretFiles) > 0 }

// redactURL shows where a URL points without its user and its query.
func redactURL(u *url.URL) string {
	shown := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}
	text := shown.String()
	if u.RawQuery != "" {
		text += "?…"
	}
	return text
}

// printable cuts text that came from elsewhere for a message: one line, no control characters, at most 200 characters.
func printable(text string) string { return excerpt(text, 200) }

// excerpt makes one line of at most limit characters: control characters and runs of space become one space.
func excerpt(text string, limit int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	words := strings.FieldsFunc(text, func(r rune) bool { return r <= ' ' || r >= 0x7f && r < 0xa0 })
	runes := []rune(strings.Join(words, " "))
	if len(runes) <= limit {
		return string(runes)
	}
	return string(runes[:limit]) + "…"
}
