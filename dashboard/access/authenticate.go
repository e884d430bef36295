package access

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"
)

// kind is one of the two sorts of credentials.
type kind string

const (
	kindToken kind = "token"
	kindUser  kind = "user"
)

// The least length of a secret: a token is made by a machine, a password by a person, who is slowed down besides.
const (
	minToken    = 16
	minPassword = 8
	maxSecret   = 4 << 10
)

// secret reads a credential's secret. The error names the credential, and never what was read.
func (k kind) secret(c Credential) (string, error) {
	text, err := c.Secret()
	least := map[kind]int{kindToken: minToken, kindUser: minPassword}[k]
	switch {
	case err != nil:
		return "", fmt.Errorf("%s %s: %w", k, c.Name, err)
	case len(text) < least:
		return "", fmt.Errorf("%s %s: the secret has %d characters, which can be guessed: make one of at least %d, "+
			"with 'openssl rand -hex 32'", k, c.Name, len(text), least)
	}
	return text, nil
}

// File returns a Credential.Secret that reads a file each time. White space around the secret does not count.
func File(path string) func() (string, error) {
	return func() (string, error) {
		info, err := os.Stat(path)
		if err == nil && info.Size() > maxSecret {
			return "", fmt.Errorf("%s has %d bytes, which is no secret: name another file", path, info.Size())
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return "", fmt.Errorf("%w: mount it and let this user read it", err)
		}
		return strings.TrimSpace(string(text)), nil
	}
}

func (a *Access) of(k kind) []Credential {
	if k == kindUser {
		return a.config.Users
	}
	return a.config.Tokens
}

// refusal is a Refusal with the headers that belong to it.
type refusal struct {
	Refusal
	retryAfter time.Duration // 0: not said
	stale      bool          // the session's cookie is to be forgotten
}

func refused(status int, detail, hint string) *refusal {
	return &refusal{Refusal: Refusal{Status: status, Detail: detail, Hint: hint}}
}

// identify tells who sends a request, and whether by a token in its header, which no browser adds by itself.
func (a *Access) identify(r *http.Request) (who Identity, byBearer bool, _ *refusal) {
	if a.Open() {
		if refusal := refuseStrangers(r); refusal != nil {
			return who, false, refusal
		}
		return Identity{Name: LocalName, Role: Operator}, false, nil
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	switch {
	case strings.EqualFold(scheme, "Bearer"):
		who, refusal := a.try(r, kindToken, "", strings.TrimSpace(token))
		return who, true, refusal
	case strings.EqualFold(scheme, "Basic"):
		name, password, ok := r.BasicAuth()
		if !ok {
			return who, false, refused(http.StatusUnauthorized, "the Authorization header cannot be read", "send base64(name:password)")
		}
		who, refusal := a.try(r, kindUser, name, password)
		return who, false, refusal
	}
	who, refusal := a.session(r)
	return who, false, refusal
}

// try looks for the credential that has a secret, at the pace that the throttle allows. The name is a user's.
func (a *Access) try(r *http.Request, k kind, name, secret string) (who Identity, _ *refusal) {
	known, broken := a.known(k, name)
	found := func() bool {
		given := sha256.Sum256([]byte(secret))
		for _, c := range known { // all of them, so that the time tells nothing
			if subtle.ConstantTimeCompare(given[:], c.hash[:]) == 1 {
				who = c.Identity
			}
		}
		return who.Name != ""
	}
	ok, wait := a.attempts.try(client(r), a.config.Now(), found)
	switch {
	case ok:
		return who, nil
	case wait > 0:
		return Identity{}, tooMany(wait)
	}
	a.config.Log.Warn("a request was refused", "kind", k, "client", client(r), "unreadable", errors.Join(broken...))
	if k == kindUser {
		return Identity{}, refused(http.StatusUnauthorized, "the name or the password is wrong",
			"check both; the password may have been replaced")
	}
	return Identity{}, refused(http.StatusUnauthorized, "the token is not known", "check it; it may have been replaced")
}

func tooMany(wait time.Duration) *refusal {
	refusal := refused(http.StatusTooManyRequests, "too many attempts have failed", "wait a little, and check the secret")
	refusal.retryAfter = wait
	return refusal
}

// hashed is a credential with its secret made as long as any other, so that comparing takes the same time.
type hashed struct {
	Identity
	hash [sha256.Size]byte
}

// known reads the secrets of one kind. One that cannot be read lets nobody in.
func (a *Access) known(k kind, name string) (known []hashed, broken []error) {
	for _, c := range a.of(k) {
		if k == kindUser && c.Name != name {
			continue
		}
		secret, err := k.secret(c)
		if err != nil {
			broken = append(broken, err)
			continue
		}
		known = append(known, hashed{Identity{c.Name, c.Role}, sha256.Sum256([]byte(secret))})
	}
	return known, broken
}
