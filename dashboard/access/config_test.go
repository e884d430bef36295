package access_test

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pillarbox-dev/pillarbox/dashboard/access"
)

// Without a credential this machine alone is let in: both ends of the connection, the name that was asked for, and no proxy.
func TestOpenToThisMachineAlone(t *testing.T) {
	a, err := access.New(access.Config{})
	if err != nil || !a.Open() {
		t.Fatalf("New: %v, open: %v", err, a.Open())
	}
	handler := a.Wrap(http.HandlerFunc(tellWho))
	for _, c := range []struct {
		client, local, host, header string
		want                        int
	}{
		{"127.0.0.1:5", "127.0.0.1:9470", "127.0.0.1:9470", "", 200},
		{"127.0.0.1:5", "127.0.0.1:9470", "localhost:9470", "", 200},
		{"127.0.0.1:5", "127.0.0.1:9470", "LOCALHOST", "", 200},
		{"[::1]:5", "[::1]:9470", "[::1]:9470", "", 200},
		{"[::ffff:127.0.0.1]:5", "", "outbox.localhost", "", 200},
		{"127.0.0.1:5", "127.0.0.1:9470", "evil.example:9470", "", 403},
		{"127.0.0.1:5", "127.0.0.1:9470", "127.0.0.1.evil.example", "", 403},
		{"127.0.0.1:5", "127.0.0.1:9470", "", "", 403},
		{"192.0.2.1:5", "127.0.0.1:9470", "localhost:9470", "", 403},
		{"127.0.0.1:5", "192.0.2.1:9470", "localhost:9470", "", 403},
		{"127.0.0.1:5", "127.0.0.1:9470", "localhost:9470", "X-Forwarded-For", 403},
		{"127.0.0.1:5", "127.0.0.1:9470", "localhost:9470", "Forwarded", 403},
		{"127.0.0.1:5", "127.0.0.1:9470", "localhost:9470", "Via", 403},
		{"127.0.0.1:5", "127.0.0.1:9470", "localhost:9470", "Sec-Fetch-Site", 403}, // its value is no site
	} {
		r := httptest.NewRequestWithContext(t.Context(), "POST", "/", nil)
		r.RemoteAddr, r.Host = c.client, c.host
		if c.local != "" {
			local := net.TCPAddrFromAddrPort(mustAddr(t, c.local))
			r = httptest.NewRequestWithContext(contextWith(t, local), "POST", "/", nil)
			r.RemoteAddr, r.Host = c.client, c.host
		}
		if c.header != "" {
			r.Header.Set(c.header, "x")
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code != c.want {
			t.Errorf("%+v: got %d %s", c, w.Code, w.Body)
		}
		if w.Code == 200 && w.Body.String() != "local operator is a operator" {
			t.Errorf("%+v is %s", c, w.Body)
		}
	}
}

// The same over a real connection.
func TestOpenOverTheNetwork(t *testing.T) {
	a, err := access.New(access.Config{})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(a.Wrap(http.HandlerFunc(tellWho)))
	defer server.Close()
	for host, want := range map[string]int{"": 200, "evil.example": 403} {
		request, err := http.NewRequestWithContext(t.Context(), "GET", server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Host = host
		answer, err := server.Client().Do(request)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != want {
			t.Errorf("Host %q: got %d, want %d", host, answer.StatusCode, want)
		}
	}
}

func TestNewTellsAllProblems(t *testing.T) {
	secret := func() (string, error) { return "", nil }
	_, err := access.New(access.Config{
		Tokens: []access.Credential{{Name: "a", Role: "admin", Secret: secret}, {Name: "", Role: access.Viewer, Secret: secret}},
		Users:  []access.Credential{{Name: "a", Role: access.Viewer}, {Name: "b:c", Role: access.Viewer, Secret: secret}},
	})
	for _, want := range []string{
		`a has the role "admin": it can be viewer or operator`, `a name of 0 bytes`, `the name "a" is taken`, `a has no secret`,
		`the user "b:c" has a colon`,
	} {
		if !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("got %v, want it to say %s", err, want)
		}
	}
}

func TestCheckReadsTheSecrets(t *testing.T) {
	folder := t.TempDir()
	file := func(name, text string) func() (string, error) {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return access.File(path)
	}
	credential := func(name string, secret func() (string, error)) access.Credential {
		return access.Credential{Name: name, Role: access.Viewer, Secret: secret}
	}
	a, err := access.New(access.Config{
		Tokens: []access.Credential{
			credential("good", file("good", ciToken)), credential("short", file("short", "tooshort")),
			credential("big", file("big", strings.Repeat("x", 5000))),
			credential("missing", access.File(filepath.Join(folder, "missing"))),
		},
		Users: []access.Credential{credential("person", file("person", "eight ch")), credential("empty", file("empty", "\n"))},
	})
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(errors.Join(a.Check()...))
	for _, want := range []string{
		"token short: the secret has 8 characters, which can be guessed", "token big: ", "has 5000 bytes, which is no secret",
		"token missing: ", "no such file or directory: mount it", "user empty: the secret has 0 characters",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("Check says\n%s\nwant %s", got, want)
		}
	}
	if strings.Contains(got, "good") || strings.Contains(got, "person") || strings.Contains(got, "tooshort") {
		t.Errorf("Check says too much:\n%s", got)
	}
}
