package access_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/dashboard/access"
)

const (
	ciToken  = "a token of thirty-two characters"
	password = "correct horse"
)

// gate is an Access with a handler behind it that says who was let in.
type gate struct {
	*testing.T
	http.Handler
	now   time.Time
	log   bytes.Buffer
	files map[string]string // of the secrets, by name
}

// newGate guards pages with a token (ci, viewer) and two users (ops, operator; guest, viewer).
func newGate(t *testing.T, base string) *gate {
	t.Helper()
	g := &gate{T: t, now: time.Unix(1_764_460_800, 0), files: map[string]string{}}
	folder := t.TempDir()
	for name, secret := range map[string]string{"ci": ciToken, "ops": password, "guest": "guest's word"} {
		g.files[name] = filepath.Join(folder, name)
		g.write(name, secret+"\n")
	}
	a := g.access(access.Config{
		Base:   base,
		Tokens: []access.Credential{{Name: "ci", Role: access.Viewer, Secret: access.File(g.files["ci"])}},
		Users: []access.Credential{
			{Name: "ops", Role: access.Operator, Secret: access.File(g.files["ops"])},
			{Name: "guest", Role: access.Viewer, Secret: access.File(g.files["guest"])},
		},
	})
	g.Handler = http.StripPrefix(base, a.Wrap(http.HandlerFunc(tellWho)))
	return g
}

func (g *gate) access(c access.Config) *access.Access {
	g.Helper()
	c.Now, c.Log = func() time.Time { return g.now }, slog.New(slog.NewTextHandler(&g.log, nil))
	a, err := access.New(c)
	if err != nil {
		g.Fatal(err)
	}
	return a
}

func tellWho(w http.ResponseWriter, r *http.Request) {
	who := access.Who(r)
	_, _ = fmt.Fprintf(w, "%s is a %s", who.Name, who.Role)
}

func (g *gate) write(name, secret string) {
	g.Helper()
	if err := os.WriteFile(g.files[name], []byte(secret), 0o600); err != nil {
		g.Fatal(err)
	}
}

// send makes a request as a browser or a program would, and returns the answer.
func (g *gate) send(method, target, body string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	g.Helper()
	r := httptest.NewRequestWithContext(g.Context(), method, target, strings.NewReader(body))
	r.RemoteAddr, r.Host = "203.0.113.7:4711", "outbox.example"
	if body != "" {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for _, c := range change {
		c(r)
	}
	w := httptest.NewRecorder()
	g.ServeHTTP(w, r)
	return w
}

func header(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

func bearer(token string) func(*http.Request) { return header("Authorization", "Bearer "+token) }

func basic(name, password string) func(*http.Request) {
	return func(r *http.Request) { r.SetBasicAuth(name, password) }
}

func from(address string) func(*http.Request) {
	return func(r *http.Request) { r.RemoteAddr = address }
}

func with(cookies []*http.Cookie) func(*http.Request) {
	return func(r *http.Request) {
		for _, c := range cookies {
			r.AddCookie(c)
		}
	}
}

func TestWhoIsLetIn(t *testing.T) {
	g := newGate(t, "")
	for name, c := range map[string]struct {
		with   func(*http.Request)
		status int
		body   string
	}{
		"a token":                     {bearer(ciToken), 200, "ci is a viewer"},
		"a user":                      {basic("ops", password), 200, "ops is a operator"},
		"nobody":                      {header("X", ""), 401, "Nobody is logged in."},
		"another token":               {bearer("a token of thirty-two characterz"), 401, "The token is not known."},
		"no token":                    {bearer(""), 401, "The token is not known."},
		"a password as a token":       {bearer(password), 401, "The token is not known."},
		"another's password":          {basic("guest", password), 401, "The name or the password is wrong."},
		"a token as a password":       {basic("ci", ciToken), 401, "The name or the password is wrong."},
		"an unknown user":             {basic("nobody", password), 401, "The name or the password is wrong."},
		"a password without a name":   {basic("", password), 401, "The name or the password is wrong."},
		"basic that cannot be read":   {header("Authorization", "Basic !"), 401, "The Authorization header cannot be read."},
		"a cookie that is none":       {header("Cookie", "pillarbox_session=x"), 401, "The session has ended."},
		"a scheme that is not spoken": {header("Authorization", "Digest x"), 401, "Nobody is logged in."},
	} {
		g := newGate(t, "") // each with a throttle of its own
		w := g.send("GET", "/events", "", c.with)
		if w.Code != c.status || !strings.HasPrefix(w.Body.String(), c.body) {
			t.Errorf("%s: got %d %s, want %d %s", name, w.Code, w.Body, c.status, c.body)
		}
		if got := len(w.Header().Values("WWW-Authenticate")); (got > 0) != (c.status == 401) {
			t.Errorf("%s: %d WWW-Authenticate headers", name, got)
		}
	}
	if strings.Contains(g.log.String(), "thirty-two") {
		t.Errorf("the log shows a secret: %s", &g.log)
	}
}

// A secret that is replaced counts at once, and one that is gone lets nobody in.
func TestSecretsRotate(t *testing.T) {
	g := newGate(t, "")
	g.write("ci", "another token of many characters")
	for token, want := range map[string]int{ciToken: 401, "another token of many characters": 200} {
		if got := g.send("GET", "/", "", bearer(token)).Code; got != want {
			t.Errorf("%s: got %d, want %d", token, got, want)
		}
	}
	for _, left := range []string{"", "\n", "short"} {
		g.write("ci", left)
		if got := g.send("GET", "/", "", bearer(strings.TrimSpace(left))).Code; got != 401 {
			t.Errorf("with %q in the file its text lets in: %d", left, got)
		}
	}
	if err := os.Remove(g.files["ci"]); err != nil {
		t.Fatal(err)
	}
	if got := g.send("GET", "/", "", bearer("")).Code; got != 401 {
		t.Errorf("without the file: got %d, want 401", got)
	}
	if !strings.Contains(g.log.String(), "mount it and let this user read it") {
		t.Errorf("the log does not say that the file is gone: %s", &g.log)
	}
}

func TestLogin(t *testing.T) {
	for _, base := range []string{"", "/outbox"} {
		g := newGate(t, base)
		page := g.send("GET", base+"/events?status=FAILED", "", header("Accept", "text/html"))
		to := page.Header().Get("Location")
		if want := base + "/login?next=" + url.QueryEscape("/events?status=FAILED"); page.Code != 303 || to != want {
			t.Fatalf("without a session: %d to %s, want to %s", page.Code, to, want)
		}
		form := g.send("GET", to, "")
		next := `name="next" value="/events?status=FAILED"`
		if form.Code != 200 || !strings.Contains(form.Body.String(), next) {
			t.Fatalf("the form: %d %s", form.Code, form.Body)
		}
		for body, want := range map[string]string{
			"name=ops&password=correct+horse": "ops is a operator", "token=" + url.QueryEscape(ciToken): "ci is a viewer",
		} {
			in := g.send("POST", base+"/login", body+"&next="+url.QueryEscape("/jobs"))
			if in.Code != 303 || in.Header().Get("Location") != base+"/jobs" {
				t.Fatalf("login: %d %s to %s", in.Code, in.Body, in.Header().Get("Location"))
			}
			session := in.Result().Cookies()
			if c := session[0]; !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Secure || c.Path != base+"/" {
				t.Errorf("the cookie is %v", c)
			}
			if got := g.send("GET", base+"/", "", with(session)).Body.String(); got != want {
				t.Errorf("with the cookie: %s, want %s", got, want)
			}
			if strings.Contains(session[0].Value, "correct") {
				t.Errorf("the cookie shows the password")
			}
		}
		wrong := g.send("POST", base+"/login", "name=ops&password=wrong+horse")
		if wrong.Code != 401 || len(wrong.Result().Cookies()) > 0 || !strings.Contains(wrong.Body.String(), "password is wrong") ||
			strings.Contains(wrong.Body.String(), "wrong horse") || wrong.Header().Get("WWW-Authenticate") != "" {
			t.Errorf("a wrong password: %d %v %s", wrong.Code, wrong.Header(), wrong.Body)
		}
		out := g.send("POST", base+"/logout", "")
		if c := out.Result().Cookies(); out.Code != 303 || len(c) != 1 || c[0].MaxAge >= 0 || c[0].Value != "" {
			t.Errorf("logout: %d %v", out.Code, c)
		}
	}
}

// A session ends with its time, its secret and its name, and takes the role that the configuration gives now.
func TestSessionEnds(t *testing.T) {
	g := newGate(t, "")
	session := g.send("POST", "/login", "name=guest&password=guest%27s+word").Result().Cookies()
	check := func(why string, want int) {
		t.Helper()
		w := g.send("GET", "/", "", with(session))
		if w.Code != want {
			t.Errorf("%s: got %d, want %d", why, w.Code, want)
		}
		if c := w.Result().Cookies(); want == 401 && (len(c) != 1 || c[0].MaxAge >= 0) {
			t.Errorf("%s: the cookie is not forgotten: %v", why, c)
		}
	}
	check("at once", 200)
	g.now = g.now.Add(12*time.Hour - time.Second)
	check("in the twelfth hour", 200)
	g.now = g.now.Add(time.Second)
	check("after it", 401)
	g.now = g.now.Add(-time.Hour)
	g.write("guest", "another word")
	check("after the password was replaced", 401)
	g.write("guest", "guest's word")
	other := g.access(access.Config{Users: []access.Credential{
		{Name: "guest", Role: access.Operator, Secret: access.File(g.files["guest"])},
	}})
	g.Handler = other.Wrap(http.HandlerFunc(tellWho))
	if got := g.send("GET", "/", "", with(session)).Body.String(); got != "guest is a operator" {
		t.Errorf("in another process, with another role: %s", got)
	}
	g.Handler = g.access(access.Config{Users: []access.Credential{
		{Name: "ops", Role: access.Operator, Secret: access.File(g.files["guest"])},
	}}).Wrap(http.HandlerFunc(tellWho))
	check("once nobody is called that", 401)
	lost := g.send("POST", "/jobs", "x=1", with(session), header("Accept", "text/html"))
	if got := lost.Header().Get("Location"); lost.Code != 303 || got != "/login?ended" {
		t.Errorf("a form after the end: %d to %s", lost.Code, got)
	}
}

// A secret that was emptied, as while its file is written anew, lets nobody in: neither with an empty secret nor with a cookie that
// is signed with one, whatever kind of credential the cookie says that it is of.
func TestAnEmptySecretLetsNobodyIn(t *testing.T) {
	g := newGate(t, "")
	g.write("ci", "\n")
	g.write("ops", "")
	for _, kind := range []string{"token", "user", "other", ""} {
		for _, name := range []string{"ci", "ops"} {
			text := fmt.Sprintf(`{"k":%q,"n":%q,"u":%d}`, kind, name, g.now.Add(time.Hour).Unix())
			answer := g.send("GET", "/", "", func(r *http.Request) {
				r.AddCookie(&http.Cookie{Name: "pillarbox_session", Value: signedWith("", text)})
			})
			if answer.Code != http.StatusUnauthorized {
				t.Errorf("a cookie of the kind %q for %s: got %d %s, want 401", kind, name, answer.Code, answer.Body)
			}
		}
	}
}

// signedWith returns a session cookie as somebody would make it who knows the secret.
func signedWith(secret, text string) string {
	sign := func(key, message string) []byte {
		mac := hmac.New(sha256.New, []byte(key))
		mac.Write([]byte(message))
		return mac.Sum(nil)
	}
	encoded := base64.RawURLEncoding.EncodeToString([]byte(text))
	key := sign(secret, "pillarbox session key")
	return encoded + "." + base64.RawURLEncoding.EncodeToString(sign(string(key), encoded))
}

// Whoever guesses is slowed down, by a form, a header or a cookie; others are not, and sessions go on.
func TestThrottle(t *testing.T) {
	g := newGate(t, "")
	session := g.send("POST", "/login", "name=ops&password=correct+horse").Result().Cookies()
	guesses := map[string]func() *httptest.ResponseRecorder{
		"headers": func() *httptest.ResponseRecorder { return g.send("GET", "/", "", bearer("not the token at all")) },
		"forms":   func() *httptest.ResponseRecorder { return g.send("POST", "/login", "name=ops&password=x") },
		"cookies": func() *httptest.ResponseRecorder {
			forged := *session[0]
			forged.Value = forged.Value[:len(forged.Value)-4] + "AAAA"
			return g.send("GET", "/", "", with([]*http.Cookie{&forged}))
		},
	}
	for _, way := range []string{"headers", "forms", "cookies"} {
		g.now = g.now.Add(time.Minute) // all is forgiven
		for i := range 10 {
			if w := guesses[way](); w.Code != 401 {
				t.Fatalf("%s: guess %d: got %d, want 401", way, i, w.Code)
			}
		}
		blocked := guesses[way]()
		if blocked.Code != 429 || blocked.Header().Get("Retry-After") != "7" {
			t.Errorf("%s: guess 11: got %d, Retry-After %q, want 429 and 7", way, blocked.Code, blocked.Header().Get("Retry-After"))
		}
		if way != "cookies" {
			if got := g.send("GET", "/", "", basic("ops", password)).Code; got != 429 {
				t.Errorf("%s: the right password while blocked: got %d, want 429: it would tell that it is right", way, got)
			}
			if got := g.send("GET", "/", "", with(session)).Code; got != 200 {
				t.Errorf("%s: a session from the same address: got %d, want 200", way, got)
			}
		}
		if got := g.send("GET", "/", "", basic("ops", password), from("203.0.113.8:1")).Code; got != 200 {
			t.Errorf("%s: another address: got %d, want 200", way, got)
		}
		g.now = g.now.Add(6 * time.Second)
		if got := guesses[way]().Code; got != 401 {
			t.Errorf("%s: six seconds later: got %d, want 401", way, got)
		}
		if got := guesses[way]().Code; got != 429 {
			t.Errorf("%s: and once more: got %d, want 429", way, got)
		}
	}
}

// However many addresses guess, what is remembered is bounded, and those beyond the bound share one account.
func TestThrottleOfManyAddresses(t *testing.T) {
	g := newGate(t, "")
	codes := map[int]int{}
	for i := range 1100 {
		w := g.send("GET", "/", "", bearer("not the token at all"), from(fmt.Sprintf("[2001:db8:%x::1]:9", i)))
		codes[w.Code]++
	}
	if want := 1024 + 10; codes[401] < 1024 || codes[401] > want || codes[429] < 60 {
		t.Errorf("got %v, want at most %d guesses", codes, want)
	}
	g.now = g.now.Add(time.Minute)
	for i := range 20 { // each has its own again
		if got := g.send("GET", "/", "", bearer("not the token at all"), from(fmt.Sprintf("198.51.100.%d:9", i))).Code; got != 401 {
			t.Errorf("a minute later: got %d, want 401", got)
		}
	}
	for i := range 10 {
		g.send("GET", "/", "", bearer("not the token at all"), from(fmt.Sprintf("[2001:db9::%x]:9", i)))
	}
	if got := g.send("GET", "/", "", bearer("not the token at all"), from("[2001:db9::ffff]:9")).Code; got != 429 {
		t.Errorf("another address of the same network: got %d, want 429", got)
	}
}

func TestOtherSites(t *testing.T) {
	g := newGate(t, "")
	session := with(g.send("POST", "/login", "name=ops&password=correct+horse").Result().Cookies())
	for name, c := range map[string]struct {
		method string
		with   []func(*http.Request)
		want   int
	}{
		"our own form":                  {"POST", []func(*http.Request){session, header("Sec-Fetch-Site", "same-origin")}, 200},
		"our own form, without TLS":     {"POST", []func(*http.Request){session, header("Origin", "http://outbox.example")}, 200},
		"another site's":                {"POST", []func(*http.Request){session, header("Sec-Fetch-Site", "cross-site")}, 403},
		"a sister's":                    {"POST", []func(*http.Request){session, header("Sec-Fetch-Site", "same-site")}, 403},
		"another site's, without TLS":   {"POST", []func(*http.Request){session, header("Origin", "http://evil.example")}, 403},
		"a sandboxed frame":             {"POST", []func(*http.Request){session, header("Origin", "null")}, 403},
		"another site's, by password":   {"POST", []func(*http.Request){basic("ops", password), header("Origin", "null")}, 403},
		"another site's link":           {"GET", []func(*http.Request){session, header("Sec-Fetch-Site", "cross-site")}, 200},
		"a program with a token":        {"POST", []func(*http.Request){bearer(ciToken), header("Origin", "http://evil.example")}, 200},
		"a program with a password":     {"POST", []func(*http.Request){basic("ops", password)}, 200},
		"another method, another site":  {"DELETE", []func(*http.Request){session, header("Sec-Fetch-Site", "cross-site")}, 403},
		"a method that is none of HTTP": {"FOO", []func(*http.Request){session, header("Sec-Fetch-Site", "cross-site")}, 403},
	} {
		if got := g.send(c.method, "/events/7/retry", "", c.with...).Code; got != c.want {
			t.Errorf("%s: got %d, want %d", name, got, c.want)
		}
	}
	for _, path := range []string{"/login", "/logout"} {
		got := g.send("POST", path, "name=ops&password=correct+horse", header("Sec-Fetch-Site", "cross-site"))
		if got.Code != 403 || len(got.Result().Cookies()) > 0 {
			t.Errorf("another site's %s: %d %v", path, got.Code, got.Result().Cookies())
		}
	}
}

func TestNextStaysHere(t *testing.T) {
	g := newGate(t, "")
	for next, want := range map[string]string{
		"/events?a=b": "/events?a=b", "": "/", "//evil.example": "/", "https://evil.example": "/", "/\\evil.example": "/",
		"\\evil": "/", "javascript:alert(1)": "/", "/\t/evil.example": "/", "events": "/",
	} {
		in := g.send("POST", "/login", "name=ops&password=correct+horse&next="+url.QueryEscape(next))
		if got := in.Header().Get("Location"); got != want {
			t.Errorf("next=%q leads to %q, want %q", next, got, want)
		}
	}
}

func TestHeaders(t *testing.T) {
	g := newGate(t, "")
	secure := func(r *http.Request) { r.TLS = &tls.ConnectionState{} }
	for _, w := range []*httptest.ResponseRecorder{
		g.send("GET", "/", "", basic("ops", password), secure), g.send("GET", "/login", "", secure), g.send("GET", "/", "", secure),
	} {
		for name, want := range map[string]string{
			"Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; " +
				"object-src 'none'",
			"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "same-origin",
			"Cache-Control": "no-store", "Strict-Transport-Security": "max-age=31536000",
		} {
			if got := w.Header().Get(name); got != want {
				t.Errorf("%d: %s is %q, want %q", w.Code, name, got, want)
			}
		}
	}
	if got := g.send("GET", "/login", "").Header().Get("Strict-Transport-Security"); got != "" {
		t.Errorf("without TLS: Strict-Transport-Security is %q", got)
	}
	in := g.send("POST", "/login", "name=ops&password=correct+horse", header("X-Forwarded-Proto", "https"))
	if c := in.Result().Cookies(); len(c) != 1 || !c[0].Secure {
		t.Errorf("behind a proxy with TLS the cookie is %v, want it Secure", c)
	}
	for path, want := range map[string]string{"/login.css": "text/css; charset=utf-8", "/login.svg": "image/svg+xml"} {
		if got := g.send("GET", path, ""); got.Code != 200 || got.Header().Get("Content-Type") != want {
			t.Errorf("%s: %d, %s", path, got.Code, got.Header().Get("Content-Type"))
		}
	}
}

func TestRequireOperator(t *testing.T) {
	g := newGate(t, "")
	inner := g.access(access.Config{Tokens: []access.Credential{
		{Name: "x", Role: access.Viewer, Secret: access.File(g.files["ci"])},
	}})
	g.Handler = inner.Wrap(access.RequireOperator(http.HandlerFunc(tellWho)))
	if got := g.send("POST", "/", "", bearer(ciToken)); got.Code != 403 || !strings.Contains(got.Body.String(), "operator") {
		t.Errorf("a viewer: %d %s", got.Code, got.Body)
	}
	w := httptest.NewRecorder()
	access.RequireOperator(http.HandlerFunc(tellWho)).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "POST", "/", nil))
	if w.Code != 403 {
		t.Errorf("nobody at all: %d", w.Code)
	}
}
