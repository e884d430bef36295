package http

import (
	"fmt"
	"net/http"
	"time"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// Codes of outcomes, besides HTTP_nnn for a status that has no name of its own here, and those that overrides give.
const (
	CodeProtocol     = "PROTOCOL"     // no valid answer, or one that is no answer to a delivery
	CodeMoved        = "MOVED"        // 301, 308
	CodeRedirect     = "REDIRECT"     // 302, 303, 307
	CodeUnauthorized = "UNAUTHORIZED" //nolint:misspell // 401; the word of RFC 9110
	CodeForbidden    = "FORBIDDEN"    // 403
	CodeEgress       = "EGRESS"       // 407, 511, a proxy that refuses: our own way out
	CodeGone         = "GONE"         // 410
	CodeRateLimited  = "RATE_LIMITED" // 429
	CodeOverloaded   = "OVERLOADED"   // 503 with Retry-After
)

// answer says what an answer means. The zero value: tried again, as HTTP_nnn.
type answer struct {
	kind relay.Kind
	code string // "": HTTP_nnn

	trouble bool // relay.Outcome.Trouble
	pause   bool // relay.Outcome.Pause
	// pauseAfter pauses after so many of this answer in a row from one endpoint; 0: by pause alone.
	pauseAfter int
	// redirect: without a Location it is a breach of protocol.
	redirect bool
	// reread: read the credential again, and if it has changed send once more.
	reread bool
	// fresh: send once more on a fresh connection.
	fresh bool

	hint string // what an operator can do
}

// row gives the statuses from first to last their meaning. timed replaces it when the answer has a valid Retry-After.
type row struct {
	first, last int
	is          answer
	timed       *answer
}

// strictRows is the base rule: 2xx delivered, 4xx final, all else tried again. What is not an answer to a delivery at all
// (1xx that ends the exchange, 3xx, below 100, above 599) is never a success.
var strictRows = []row{
	{first: 0, last: 999, is: protocolBreach},
	{first: 200, last: 299, is: answer{kind: relay.Published}},
	{first: 400, last: 499, is: answer{kind: relay.Reject}},
	{first: 500, last: 599, is: answer{kind: relay.Retry}},
}

var protocolBreach = answer{kind: relay.Retry, code: CodeProtocol, hint: "that is no answer to a delivery: check the url"}

// defaultRows are the exceptions that make up the profile "default", after strictRows.
var defaultRows = []row{
	{first: 301, last: 301, is: moved},
	{first: 302, last: 303, is: redirected},
	{first: 307, last: 307, is: redirected},
	{first: 308, last: 308, is: moved},
	// A mounted credential rotates while we send.
	{first: 401, last: 401, is: answer{kind: relay.Unavailable, code: CodeUnauthorized, reread: true, pauseAfter: 3,
		hint: "check token_file and secret_files against what the receiver knows"}},
	// Allow-lists, firewalls, clock skew.
	{first: 403, last: 403, is: answer{kind: relay.Unavailable, code: CodeForbidden, pauseAfter: 5,
		hint: "check the receiver's allow-list, its firewall and the clocks"}},
	{first: 407, last: 407, is: noWayOut},
	{first: 408, last: 408, is: answer{kind: relay.Retry}}, // RFC 9110 §15.5.9
	{first: 409, last: 409, is: answer{kind: relay.Retry}}, // the same key is still in progress
	{first: 410, last: 410, is: answer{kind: relay.Reject, code: CodeGone, pause: true,
		hint: "the endpoint says it is gone for good: set its url anew or take it out"}},
	{first: 413, last: 413, is: answer{kind: relay.Reject}, timed: &answer{kind: relay.Retry}},
	{first: 421, last: 421, is: answer{kind: relay.Retry, fresh: true}}, // RFC 9110 §15.5.20
	{first: 425, last: 425, is: answer{kind: relay.Retry}},              // RFC 8470 §5.2
	{first: 429, last: 429, is: answer{kind: relay.Unavailable, code: CodeRateLimited}},
	{first: 502, last: 504, is: answer{kind: relay.Retry, trouble: true}},
	{first: 503, last: 503, is: answer{kind: relay.Retry, trouble: true},
		timed: &answer{kind: relay.Unavailable, code: CodeOverloaded}},
	{first: 511, last: 511, is: noWayOut},
}

// No redirect is ever followed: Go makes a POST that is answered 301, 302 or 303 a GET without a body.
var (
	moved = answer{kind: relay.Unavailable, code: CodeMoved, pause: true, redirect: true,
		hint: "no redirect is followed: if the endpoint has moved, set its url to that"}
	redirected = answer{kind: relay.Retry, code: CodeRedirect, trouble: true, redirect: true}
	noWayOut   = answer{kind: relay.Unavailable, code: CodeEgress,
		hint: "a proxy or network of our own wants something first: check proxy and the way out"}
)

// answers is a profile with a destination's overrides: what every status means.
type answers struct {
	is    [1000]answer
	timed [1000]*answer
}

// newAnswers lays the overrides over the profile: those of a class first, then those of one status.
func newAnswers(profile Profile, overrides []Override) *answers {
	a := new(answers)
	a.lay(strictRows)
	if profile != Strict {
		a.lay(defaultRows)
	}
	for _, classes := range []bool{true, false} {
		for _, o := range overrides {
			if (o.First != o.Last) == classes {
				a.override(o)
			}
		}
	}
	return a
}

func (a *answers) lay(rows []row) {
	for _, r := range rows {
		for status := r.first; status <= r.last; status++ {
			a.is[status], a.timed[status] = r.is, r.timed
		}
	}
}

func (a *answers) override(o Override) {
	for status := o.First; status <= o.Last; status++ {
		// A status that says that the endpoint is in trouble goes on saying so, whatever becomes of the event.
		trouble := a.is[status].trouble && o.Kind == relay.Retry
		a.is[status], a.timed[status] = answer{kind: o.Kind, code: o.Code, trouble: trouble}, nil
	}
}

// judge says what an answer means, and how long its Retry-After asks to wait.
func (a *answers) judge(status int, h http.Header, now time.Time, limit time.Duration) (is answer, after time.Duration) {
	if status < 0 || status >= len(a.is) {
		return protocolBreach, 0
	}
	is = a.is[status]
	after, timed := retryAfter(h, now, limit)
	if timed && a.timed[status] != nil {
		is = *a.timed[status]
	}
	if is.redirect && h.Get("Location") == "" {
		is = protocolBreach
	}
	if is.code == "" && is.kind != relay.Published {
		is.code = fmt.Sprintf("HTTP_%03d", status)
	}
	if is.kind == relay.Published || is.kind == relay.Reject {
		after = 0
	}
	return is, after
}
