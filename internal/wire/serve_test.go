package wire

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/internal/config"
	"github.com/pillarbox-dev/pillarbox/outbox"
)

// served is a process that works and answers.
type served struct {
	*testing.T
	*Process
	client http.Client
}

// serve runs a process until the test ends.
func serve(t *testing.T, c *config.Config) *served {
	t.Helper()
	var log bytes.Buffer
	p, err := NewProcess(t.Context(), c, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		p.Close()
		if t.Failed() {
			t.Logf("the process says:\n%s", &log)
		}
	})
	s := &served{T: t, Process: p}
	s.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return s
}

func (s *served) get(path string, change func(*http.Request)) (status int, body string) {
	s.Helper()
	r, err := http.NewRequestWithContext(s.Context(), "GET", "http://"+s.Addr+path, nil)
	if err != nil {
		s.Fatal(err)
	}
	change(r)
	answer, err := s.client.Do(r)
	if err != nil {
		s.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		s.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

func asItIs(*http.Request) {}

func bearer(token string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }
}

// secretFile holds a secret for the length of a test.
func secretFile(t *testing.T, secret string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// What is served, and to whom: on this machine to everybody, with a credential to who has it, and not at all when it is off.
func TestServedToWhom(t *testing.T) {
	const token = "a token of many characters"
	file := secretFile(t, token)
	for name, c := range map[string]struct {
		text string
		want map[string]int // by path
		with func(*http.Request)
	}{
		"this machine": {"", map[string]int{
			"/": 200, "/api/v1/status": 200, "/healthz": 200, "/readyz": 200, "/metrics": 200, "/api/v1/nothing": 404}, asItIs},
		"another name for it": {"", map[string]int{"/": 403, "/api/v1/status": 403, "/healthz": 200}, func(r *http.Request) {
			r.Host = "evil.example"
		}},
		"nobody": {"dashboard: {tokens: [{name: ci, role: viewer, file: " + file + "}]}\n", map[string]int{
			"/": 401, "/api/v1/status": 401, "/login": 200, "/healthz": 200, "/readyz": 200, "/metrics": 200}, asItIs},
		"who has the token": {"dashboard: {tokens: [{name: ci, role: viewer, file: " + file + "}]}\n", map[string]int{
			"/": 200, "/api/v1/status": 200}, bearer(token)},
		"switched off": {"dashboard: {enabled: false}\n", map[string]int{
			"/": 404, "/api/v1/status": 404, "/login": 404, "/healthz": 200, "/metrics": 200}, asItIs},
	} {
		t.Run(name, func(t *testing.T) {
			c1 := load(t, fmt.Sprintf("database: {url: %q}\nlisten: 127.0.0.1:0\n%s"+
				"destinations: {a: {http: {url: \"http://127.0.0.1:1\", allow_private: true}}}\n",
				"sqlite://"+filepath.Join(t.TempDir(), "box.db"), c.text), nil)
			migrated(t, c1)
			s := serve(t, c1)
			for path, want := range c.want {
				got, body := s.get(path, c.with)
				if path == "/readyz" && got == 503 {
					continue // the lease is taken while we ask
				}
				if got != want {
					t.Errorf("%s: got %d %.200s, want %d", path, got, body, want)
				}
			}
		})
	}
}

// A secret that is missing is told by check, and keeps the process from starting.
func TestSecretIsMissing(t *testing.T) {
	c := load(t, fmt.Sprintf(`
database: {url: %q}
listen: 127.0.0.1:0
dashboard:
  tokens: [{name: ci, role: viewer, file: /nowhere/ci}, {name: short, role: viewer, file: %s}]
destinations: {a: {http: {url: "http://127.0.0.1:1", allow_private: true}}}
`, "sqlite://"+filepath.Join(t.TempDir(), "box.db"), secretFile(t, "short")), nil)
	migrated(t, c)
	_, err := NewProcess(t.Context(), c, slog.New(slog.DiscardHandler))
	var found string
	for _, f := range Check(t.Context(), c) {
		if f.Part == "dashboard" {
			found = fmt.Sprint(f.About, f.Problems)
		}
	}
	for _, want := range []string{"token ci: open /nowhere/ci", "mount it", "token short: the secret has 5 characters"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("NewProcess: %v, want it to say %s", err, want)
		}
		if !strings.Contains(found, want) {
			t.Errorf("Check: %s, want it to say %s", found, want)
		}
	}
}

// TestGuideOfTheAPI runs the commands of docs/api.md against a process that works: a poison event is found, repaired there and
// published, and the log tells it.
func TestGuideOfTheAPI(t *testing.T) {
	guide, err := os.ReadFile("../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	const token = "a token of many characters"
	for name, database := range databases(t) {
		t.Run(name, func(t *testing.T) {
			receiver, got := pickyReceiver(t)
			c := load(t, fmt.Sprintf(`
database: %s
listen: 127.0.0.1:0
dashboard: {tokens: [{name: alarm, role: operator, file: %s}]}
destinations: {suppliers: {http: {url: %q, allow_private: true}}}
`, database, secretFile(t, token), receiver), nil)
			db := migrated(t, c)
			enqueue(t, c, db, outbox.Event{Topic: "orders", Key: "k", Type: "OrderPlaced", Payload: []byte(`{"customr":"C-1"}`)})
			s := serve(t, c)
			s.until("/api/v1/events?status=QUARANTINED", token, `"status":"QUARANTINED"`)

			script := "set -euo pipefail\n" + strings.Join(blocks(string(guide), "sh"), "")
			cmd := exec.CommandContext(t.Context(), "bash", "-c", script)
			cmd.Env = append(os.Environ(), "OUTBOX=http://"+s.Addr, "TOKEN="+token)
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("the commands of the guide: %v\n%s", err, out)
			}
			for _, want := range []string{`"customr"`, "HTTP_422", "PENDING", `"action": "repair"`, `"operator": "alarm"`, `"state": "`} {
				if !strings.Contains(string(out), want) {
					t.Errorf("the commands of the guide say\n%s\nwant %s in it", out, want)
				}
			}
			select {
			case body := <-got:
				if body != `{"customer":"C-1"}` {
					t.Errorf("the receiver got %s", body)
				}
			case <-time.After(20 * time.Second):
				t.Error("the repaired event does not arrive")
			}
			s.until("/api/v1/events?status=PUBLISHED", token, `"status":"PUBLISHED"`)
		})
	}
}

// The example of docs/operations.md is one that runs.
func TestExampleOfAccess(t *testing.T) {
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, example := range blocks(string(text), "yaml") {
		if strings.Contains(example, "dashboard:") {
			found++
			c := load(t, "database: {url: \"sqlite:///a.db\"}\ndestinations: {a: {http: {url: \"https://a.example\"}}}\n"+example, nil)
			if !c.ServesDashboard() || len(c.Dashboard.Access().Tokens)+len(c.Dashboard.Access().Users) != 2 {
				t.Errorf("it serves nobody: %s", c)
			}
		}
	}
	if found != 1 {
		t.Errorf("there are %d examples with a dashboard, want 1", found)
	}
}

// until asks until the answer holds a text.
func (s *served) until(path, token, want string) {
	s.Helper()
	var body string
	for range 400 {
		if _, body = s.get(path, bearer(token)); strings.Contains(body, want) {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	s.Fatalf("%s does not come to hold %s: %s", path, want, body)
}

// pickyReceiver takes events that name a customer, as jq writes them, and rejects all others.
func pickyReceiver(t *testing.T) (url string, got <-chan string) {
	taken := make(chan string, 100)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		text := strings.Join(strings.Fields(string(body)), "")
		if err != nil || !strings.Contains(text, `"customer"`) {
			w.WriteHeader(http.StatusUnprocessableEntity)
			return
		}
		select {
		case taken <- text:
		default:
		}
	}))
	t.Cleanup(server.Close)
	return server.URL, taken
}

// blocks returns the blocks of code of one language.
func blocks(markdown, language string) (all []string) {
	for _, part := range strings.Split(markdown, "```"+language+"\n")[1:] {
		code, _, _ := strings.Cut(part, "```")
		all = append(all, code)
	}
	return all
}
