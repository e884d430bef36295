package access

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"time"
)

// A session is a cookie that says who logged in and until when, signed with a key that follows from the credential's secret. So
// every process that has the secret accepts it, nothing is stored, and replacing the secret ends all its sessions. The role is
// not in it: it is what the configuration says now.
type session struct {
	Kind  kind   `json:"k"`
	Name  string `json:"n"`
	Until int64  `json:"u"` // s, Unix
}

const (
	sessionCookie = "pillarbox_session"
	sessionTime   = 12 * time.Hour
	maxCookie     = 1 << 10
)

// seal returns the cookie's value.
func (s session) seal(secret string) string {
	text, _ := json.Marshal(s) // two strings and a number
	encoded := base64.RawURLEncoding.EncodeToString(text)
	return encoded + "." + base64.RawURLEncoding.EncodeToString(signature(encoded, secret))
}

func signature(text, secret string) []byte {
	key := hmac.New(sha256.New, []byte(secret))
	key.Write([]byte("pillarbox session key"))
	mac := hmac.New(sha256.New, key.Sum(nil))
	mac.Write([]byte(text))
	return mac.Sum(nil)
}

// parse reads a value without believing it. The text is what its signature is of.
func parse(value string) (s session, text string, mac []byte, ok bool) {
	text, encoded, ok := strings.Cut(value, ".")
	if !ok || len(value) > maxCookie {
		return s, "", nil, false
	}
	plain, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		mac, err = base64.RawURLEncoding.DecodeString(encoded)
	}
	if err == nil {
		err = json.Unmarshal(plain, &s)
	}
	// Of another kind nothing would be asked of the secret, not even that there is one.
	return s, text, mac, err == nil && (s.Kind == kindToken || s.Kind == kindUser)
}

// session returns who is logged in. A signature that is wrong counts as a failed attempt: its key follows from a password.
func (a *Access) session(r *http.Request) (who Identity, _ *refusal) {
	const hint = "send a token (Authorization: Bearer …), or log in"
	cookie, err := r.Cookie(sessionCookie)
	if err != nil {
		return who, refused(http.StatusUnauthorized, "nobody is logged in", hint)
	}
	ended := refused(http.StatusUnauthorized, "the session has ended", hint)
	ended.stale = true
	now := a.config.Now()
	s, text, mac, ok := parse(cookie.Value)
	if !ok || !now.Before(time.Unix(s.Until, 0)) {
		return who, ended
	}
	for _, c := range a.of(s.Kind) {
		if c.Name != s.Name {
			continue
		}
		secret, err := s.Kind.secret(c)
		if err != nil {
			return who, ended
		}
		ok, wait := a.sessions.try(client(r), now, func() bool { return hmac.Equal(mac, signature(text, secret)) })
		switch {
		case ok:
			return Identity{c.Name, c.Role}, nil
		case wait > 0:
			return who, tooMany(wait)
		}
	}
	return who, ended
}

// cookie returns a session as a cookie; age 0: one that ends it. It is Secure whenever the browser came by TLS, also to a proxy
// before us: whoever lies about that harms nobody else.
func (a *Access) cookie(r *http.Request, value string, age time.Duration) *http.Cookie {
	seconds := int(age / time.Second)
	if seconds == 0 {
		seconds = -1 // what net/http wants for Max-Age=0
	}
	return &http.Cookie{
		Name: sessionCookie, Value: value, Path: a.config.Base + "/", MaxAge: seconds,
		HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https",
	}
}
