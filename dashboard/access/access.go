// Package access decides who may use the dashboard and the API, and as what: a viewer or an operator.
//
//	request → headers → credential → identity → role → handler
//
// A token (Authorization: Bearer) is for programs, a name and a password for people; both work in the login form of a browser,
// which keeps a signed cookie. Secrets are read again for each request, so that they can be rotated, and are neither logged nor
// shown. Without any credential only this machine is let in, as an operator.
package access

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Config says who may come in.
type Config struct {
	// Tokens are for programs. Users are for people, and log in with their name and a password.
	Tokens, Users []Credential
	// Base is the path that the pages are mounted at, like "/outbox". Default "": the root. What Wrap is given has it
	// stripped (http.StripPrefix); redirects and forms add it.
	Base string
	// Log takes the attempts that failed, without what was sent. Default: nothing is logged.
	Log *slog.Logger
	// Now is the clock. Default time.Now.
	Now func() time.Time
}

// Credential is a secret, and who has it.
type Credential struct {
	// Name stands in the operators' log for whoever used it. No two credentials share one.
	Name string
	Role Role
	// Secret returns the secret as it is now; see File.
	Secret func() (string, error)
}

// Access lets requests in or refuses them. It is safe for concurrent use.
type Access struct {
	config   Config
	crossing http.CrossOriginProtection
	// Two, so that somebody who guesses passwords does not end the sessions of others behind the same address.
	attempts, sessions *throttle
}

// New checks a configuration. It reads no secret: see Check.
func New(c Config) (*Access, error) {
	var problems []error
	names := map[string]bool{LocalName: true}
	for _, credential := range slices.Concat(c.Tokens, c.Users) {
		if err := credential.check(names); err != nil {
			problems = append(problems, err)
		}
	}
	for _, user := range c.Users {
		if strings.Contains(user.Name, ":") {
			problems = append(problems, fmt.Errorf(
				"the user %q has a colon in its name, which basic authentication cannot send: take it out", user.Name))
		}
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	c.Base = strings.TrimSuffix(c.Base, "/")
	return &Access{config: c, attempts: newThrottle(), sessions: newThrottle()}, errors.Join(problems...)
}

// MaxName is how many bytes of a name the operators' log takes.
const MaxName = 200

func (c Credential) check(names map[string]bool) error {
	var problems []error
	bad := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	switch {
	case c.Name == "" || len(c.Name) > MaxName:
		bad("a credential has a name of %d bytes: give it one of 1 to %d, which stands in the operators' log", len(c.Name), MaxName)
	case names[c.Name]:
		bad("the name %q is taken: give each credential its own, so that the operators' log tells them apart", c.Name)
	}
	names[c.Name] = true
	if c.Role != Viewer && c.Role != Operator {
		bad("%s has the role %q: it can be %s or %s", c.Name, c.Role, Viewer, Operator)
	}
	if c.Secret == nil {
		bad("%s has no secret: name the file that holds it", c.Name)
	}
	return errors.Join(problems...)
}

// Open tells whether no credential is asked for, and this machine alone is let in.
func (a *Access) Open() bool { return len(a.config.Tokens)+len(a.config.Users) == 0 }

// Check reads all secrets and returns what is wrong with them, each with a hint.
func (a *Access) Check() (problems []error) {
	for _, kind := range []kind{kindToken, kindUser} {
		for _, credential := range a.of(kind) {
			if _, err := kind.secret(credential); err != nil {
				problems = append(problems, err)
			}
		}
	}
	return problems
}

// Wrap guards pages: who is not known is led to the login form, which Wrap serves as well.
func (a *Access) Wrap(next http.Handler) http.Handler {
	mux := http.NewServeMux()
	a.handleLogin(mux)
	mux.Handle("/", a.guard(next, a.refusePage))
	return secured(mux)
}

// Refuse answers a request that is not let in.
type Refuse func(http.ResponseWriter, *http.Request, Refusal)

// Refusal says why a request is not let in. Headers that belong to it, such as Retry-After, are set already.
type Refusal struct {
	Status       int
	Detail, Hint string
}

// WrapAPI guards an API, which answers refusals in its own form.
func (a *Access) WrapAPI(next http.Handler, refuse Refuse) http.Handler {
	return secured(a.guard(next, refuse))
}

func (a *Access) guard(next http.Handler, refuse Refuse) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, byBearer, refusal := a.identify(r)
		if refusal == nil && !byBearer {
			refusal = a.sameOrigin(r)
		}
		if refusal != nil {
			a.announce(w, r, refusal)
			refuse(w, r, refusal.Refusal)
			return
		}
		again := func() Identity {
			who, _, _ := a.identify(r)
			return who
		}
		next.ServeHTTP(w, r.WithContext(let(r.Context(), who, again)))
	})
}

// sameOrigin refuses what another site makes a browser send along with the cookie, the password or the loopback address of its
// user. The browser says in Sec-Fetch-Site, or in Origin, where a request comes from, and no page can change what it says. A
// token in each form would add nothing to that: the cookie is SameSite=Strict as well, pages cannot be framed, and a token would
// go stale in pages that stay open for days. A program has no such header, and no cookie that could be borrowed.
func (a *Access) sameOrigin(r *http.Request) *refusal {
	if err := a.crossing.Check(r); err != nil {
		return refused(http.StatusForbidden, "the request was started by another site",
			"use the dashboard's own pages; a proxy before it must pass the Host header on")
	}
	return nil
}
