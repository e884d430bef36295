package http

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// Profile names what answers mean before a destination's overrides.
type Profile string

const (
	// Default is Strict with the exceptions that real receivers need: 401, 403, 408, 409, 425, 429, 503 and others are
	// no fault of the event.
	Default Profile = "default"
	// Strict: 2xx is delivered, 4xx is final, 5xx is tried again.
	Strict Profile = "strict"
)

// Override gives the statuses from First to Last, both included, a meaning of their own. Make it with ParseOverrides.
type Override struct {
	First, Last int
	Kind        relay.Kind
	Code        string // "": HTTP_nnn
}

var (
	overrideStatus = regexp.MustCompile(`^([2-5])(?:xx|[0-9][0-9])$`)
	overrideCode   = regexp.MustCompile(`^[A-Z][A-Z0-9_]{0,39}$`)
	overrideKinds  = map[string]relay.Kind{
		"published":   relay.Published,
		"retry":       relay.Retry,
		"reject":      relay.Reject,
		"unavailable": relay.Unavailable,
	}
)

// ParseOverrides reads the answers that a destination changes: a status or a class, and what it means.
//
//	404: retry
//	402: reject REJECTED_BALANCE
//	409: published
//	5xx: unavailable
//
// A status beats its class. The error joins all that is wrong, each with a hint.
func ParseOverrides(texts map[string]string) ([]Override, error) {
	var overrides []Override
	var problems []error
	for _, status := range slices.Sorted(maps.Keys(texts)) {
		o, err := parseOverride(status, texts[status])
		if err != nil {
			problems = append(problems, fmt.Errorf("answers: %s: %w", printable(status), err))
			continue
		}
		overrides = append(overrides, o)
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	return overrides, nil
}

func parseOverride(status, text string) (o Override, err error) {
	if !overrideStatus.MatchString(status) {
		return o, errors.New("is neither a status from 200 to 599 nor a class: write it like 404 or 5xx")
	}
	if o.First = int(status[0]-'0') * 100; status[1] == 'x' {
		o.Last = o.First + 99
	} else {
		o.First += int(status[1]-'0')*10 + int(status[2]-'0')
		o.Last = o.First
	}
	words := strings.Fields(text)
	if len(words) == 0 {
		return o, errors.New("says nothing: write published, retry, reject or unavailable")
	}
	kind, ok := overrideKinds[words[0]]
	switch {
	case !ok:
		return o, fmt.Errorf("%q is no meaning: write published, retry, reject or unavailable", printable(words[0]))
	case len(words) > 2:
		return o, fmt.Errorf("%q is too much: write one word and perhaps a code, like reject REJECTED_BALANCE", printable(text))
	case kind == relay.Published && status[0] == '3':
		return o, errors.New("a redirect is never a delivery: set the url to where it points")
	case kind == relay.Published && len(words) == 2:
		return o, errors.New("published has no code: leave it out")
	case len(words) == 2 && !overrideCode.MatchString(words[1]):
		return o, fmt.Errorf("%q is no code: write at most 40 of A–Z, 0–9 and _, a letter first", printable(words[1]))
	}
	o.Kind = kind
	if len(words) == 2 {
		o.Code = words[1]
	}
	return o, nil
}
