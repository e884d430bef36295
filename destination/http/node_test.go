package http

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/outbox/webhook"
	"github.com/pillarbox-dev/pillarbox/relay"
)

// startNode runs the receiver of testdata/node with the given secret files and returns the URL of its events.
func startNode(t *testing.T, secretFiles ...string) (url string) {
	t.Helper()
	const folder = "testdata/node"
	node, err := exec.LookPath("node")
	if err != nil {
		t.Fatalf("%v: install Node.js 18 or later; receivers in other languages are part of what is promised", err)
	}
	if _, err := os.Stat(filepath.Join(folder, "node_modules", "express")); err != nil {
		install := exec.CommandContext(t.Context(), "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
		install.Dir = folder
		if out, err := install.CombinedOutput(); err != nil {
			t.Fatalf("npm ci in %s: %v\n%s", folder, err, out)
		}
	}
	command := exec.CommandContext(context.Background(), node, "receiver.js")
	command.Dir = folder
	command.Env = append(os.Environ(), "PORT=0", "SECRET_FILES="+strings.Join(secretFiles, ","))
	var stderr bytes.Buffer
	command.Stderr = &stderr
	stdout, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
		if t.Failed() {
			t.Logf("what the receiver wrote: %s", &stderr)
		}
	})
	started := time.AfterFunc(20*time.Second, func() { _ = command.Process.Kill() })
	line, _ := bufio.NewReader(stdout).ReadString('\n')
	started.Stop()
	port, ok := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
	if !ok {
		t.Fatalf("the receiver does not start: %q", line)
	}
	return "http://127.0.0.1:" + port + "/events"
}

// A receiver in another language takes what this destination signs, byte for byte, and answers 401 to everything else.
func TestNodeReceiver(t *testing.T) {
	current, old := secretFile(t, "s3cret"), secretFile(t, "the old one")
	url := startNode(t, current, old)
	sign := func(file string) func(*Config) {
		return func(c *Config) {
			c.Signing.Hex = true
			c.Endpoint.SecretFiles = []string{file}
		}
	}
	published := relay.Outcome{Kind: relay.Published, Receipt: "200"}
	d, rotating := newDestination(t, url, sign(current)), newDestination(t, url, sign(old))
	stranger := newDestination(t, url, sign(secretFile(t, "another")))
	for name, e := range map[string]*relay.Event{
		"1.0":       newEvent(func(e *relay.Event) { e.ID, e.Payload = "number", []byte("1.0") }),
		"spaces":    newEvent(func(e *relay.Event) { e.ID, e.Payload = "spaces", []byte("{ \"a\" : 1e2 ,\"a\":\"\\u00e9é\" }\n") }),
		"big":       newEvent(func(e *relay.Event) { e.ID, e.Payload = "big", []byte("12345678901234567890.10") }),
		"tombstone": newEvent(func(e *relay.Event) { e.ID, e.Payload = "tombstone", nil }),
		"binary":    newEvent(func(e *relay.Event) { e.ID, e.Payload, e.Binary = "binary", []byte{0xff, 0xfe, 0}, true }),
	} {
		t.Run(name, func(t *testing.T) {
			same(t, deliver(t, stranger, e), relay.Outcome{Kind: relay.Unavailable, Code: CodeUnauthorized, Receipt: "401",
				Pause: stranger.streaks.of[""].length >= 3})
			same(t, deliver(t, d, e), published)
			same(t, deliver(t, rotating, e), published) // a duplicate, signed with the other active secret
		})
	}
	changed := newEvent(func(e *relay.Event) { e.ID, e.Payload = "number", []byte("1") })
	same(t, deliver(t, d, changed), relay.Outcome{Kind: relay.Reject, Code: "HTTP_422", Receipt: "422", Message: "another body"})
}

// What a naive receiver answers 500 to, or takes for something else.
func TestNodeReceiverRefuses(t *testing.T) {
	url := startNode(t, secretFile(t, "s3cret"))
	body := []byte("1.0")
	right := webhook.SignHex([]byte("s3cret"), body)
	send := func(t *testing.T, method string, body []byte, header http.Header) (status int, answer string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header = header
		got, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer got.Body.Close()
		text, err := io.ReadAll(got.Body)
		if err != nil {
			t.Fatal(err)
		}
		return got.StatusCode, string(text)
	}
	for name, signatures := range map[string][]string{
		"missing":          nil,
		"empty":            {""},
		"short":            {right[:70]},
		"prefix alone":     {"sha256="},
		"long":             {right + "00"},
		"not hex":          {"sha256=" + strings.Repeat("zz", 32)},
		"not ASCII":        {"sha256=" + strings.Repeat("é", 32)},
		"not ASCII, 64":    {"sha256=" + strings.Repeat("é", 64)},
		"without a prefix": {right[7:]},
		"other scheme":     {"sha512=" + right[7:]},
		"twice":            {right, right},
		"wrong":            {webhook.SignHex([]byte("another"), body)},
		"of another body":  {webhook.SignHex([]byte("s3cret"), []byte("1"))},
	} {
		t.Run(name, func(t *testing.T) {
			header := http.Header{
				"Content-Type": {"application/json"}, "idempotency-key": {"id-1"}, "Pillarbox-Signature": signatures,
			}
			if code, answer := send(t, "POST", body, header); code != 401 || answer != "" {
				t.Errorf("answered %d %q, want 401 and nothing", code, answer)
			}
		})
	}
	signed := func(body []byte, more ...string) http.Header {
		h := http.Header{
			"Content-Type": {"application/json"}, "idempotency-key": {"id-2"},
			"Pillarbox-Signature": {webhook.SignHex([]byte("s3cret"), body)},
		}
		for i := 0; i < len(more); i += 2 {
			h[more[i]] = []string{more[i+1]}
		}
		return h
	}
	large := bytes.Repeat([]byte("1"), 2<<20)
	for name, tt := range map[string]struct {
		method string
		body   []byte
		header http.Header
		want   int
	}{
		"upper-case hex":  {"POST", body, signed(body, "Pillarbox-Signature", "sha256="+strings.ToUpper(right[7:])), 200},
		"no key":          {"POST", body, signed(body, "idempotency-key", ""), 400},
		"key not ASCII":   {"POST", body, signed(body, "idempotency-key", "é"), 400},
		"not JSON":        {"POST", []byte("{"), signed([]byte("{"), "idempotency-key", "id-3"), 400},
		"too large":       {"POST", large, signed(large), 413},
		"broken encoding": {"POST", body, signed(body, "Content-Encoding", "gzip"), 400},
		"method":          {"PUT", body, signed(body), 405},
	} {
		t.Run(name, func(t *testing.T) {
			code, answer := send(t, tt.method, tt.body, tt.header)
			if code != tt.want {
				t.Errorf("answered %d %q, want %d", code, answer, tt.want)
			}
			if code != 200 {
				return
			}
			var handled struct{ Handled string }
			if err := json.Unmarshal([]byte(answer), &handled); err != nil {
				t.Fatal(err)
			}
			if got, _ := base64.StdEncoding.DecodeString(handled.Handled); !bytes.Equal(got, tt.body) {
				t.Errorf("handled %q, want %q", got, tt.body)
			}
		})
	}
}
