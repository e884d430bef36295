package audit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pillarbox-dev/pillarbox/outbox/webhook"
)

const (
	secret = "It's a Secret to Everybody"
	token  = "t0ken"
)

func newServer(t *testing.T) (*Server, string) {
	t.Helper()
	s, err := New(t.Context(), filepath.Join(t.TempDir(), "audit.db"), token, []byte(secret))
	if err != nil {
		t.Fatal(err)
	}
	listening := httptest.NewServer(s)
	t.Cleanup(func() { listening.Close(); s.Close() })
	return s, listening.URL
}

// post sends an event, well made but for what mend does to the request.
func post(t *testing.T, url, id, body string, mend func(*http.Request)) (status int, answer string, err error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/events", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Idempotency-Key", id)
	request.Header.Set(SignatureHeader, webhook.SignHex([]byte(secret), []byte(body)))
	request.GetBody = nil // the transport sends it once
	if mend != nil {
		mend(request)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, string(text), err
}

func event(id string) string { return fmt.Sprintf(`{"id":%q,"type":"approval.use"}`, id) }

func TestAnswers(t *testing.T) {
	s, url := newServer(t)
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	for _, tt := range []struct {
		name, id, body string
		mend           func(*http.Request)
		status         int
		answer         string
	}{
		{"accepted", "1", event("1"), nil, 202, ""},
		{"again", "1", event("1"), nil, 200, `{"duplicate":true}`},
		{"the id with another body", "1", event("1") + " ", nil, 422, ""},
		{"no token", "2", event("2"), func(r *http.Request) { r.Header.Del("Authorization") }, 401, ""},
		{"another token", "2", event("2"), header("Authorization", "Bearer other"), 401, ""},
		{"another scheme", "2", event("2"), header("Authorization", "Basic "+token), 401, ""},
		{"no signature", "2", event("2"), header(SignatureHeader, ""), 401, ""},
		{"the signature of another body", "2", event("2"),
			header(SignatureHeader, webhook.SignHex([]byte(secret), []byte("{}"))), 401, ""},
		{"the id of another body", "3", event("2"), nil, 400, ""},
		{"no JSON", "2", "{", nil, 400, ""},
		{"the next one", "2", event("2"), nil, 202, ""},
	} {
		if status, answer, err := post(t, url, tt.id, tt.body, tt.mend); status != tt.status || answer != tt.answer || err != nil {
			t.Errorf("%s: %d %q %v, want %d %q", tt.name, status, answer, err, tt.status, tt.answer)
		}
	}
	chain, err := s.Chain(t.Context())
	if err != nil || len(chain) != 2 || chain[0].Times != 2 || chain[1].EventID != "2" {
		t.Errorf("the chain is %+v, %v; want 1, twice, and 2", chain, err)
	}
}

func TestControl(t *testing.T) {
	s, url := newServer(t)
	s.Tell(Control{Down: new(true)})
	if status, _, _ := post(t, url, "1", event("1"), nil); status != 503 {
		t.Errorf("down: %d, want 503", status)
	}
	s.Tell(Control{Down: new(false), LoseEvery: new(1)})
	if status, _, err := post(t, url, "1", event("1"), nil); err == nil {
		t.Errorf("the answer came: %d, want it lost", status)
	}
	other := "other"
	s.Tell(Control{LoseEvery: new(0), Token: &other})
	if status, _, _ := post(t, url, "1", event("1"), nil); status != 401 {
		t.Errorf("the old token: %d, want 401", status)
	}
	again := func(r *http.Request) { r.Header.Set("Authorization", "Bearer other") }
	if status, _, _ := post(t, url, "1", event("1"), again); status != 200 {
		t.Errorf("stored with a lost answer: %d, want 200", status)
	}
}

// Whatever is done to an entry, the chain shows it.
func TestChainShowsTampering(t *testing.T) {
	for name, statement := range map[string]string{
		"changed":   "update entry set body = x'78' where number = 2",
		"taken out": "delete from entry where number = 2",
		"swapped":   "update entry set number = case number when 2 then 30 when 3 then 2 else number end where number in (2, 3)",
		"added":     "insert into entry (event_id, body, previous_hash, hash) values ('x', x'78', x'00', x'00')",
		"cut off":   "delete from entry where number = 1",
	} {
		s, _ := newServer(t)
		for id := range 4 {
			if _, err := add(t.Context(), s.db, fmt.Sprint(id), []byte(event(fmt.Sprint(id)))); err != nil {
				t.Fatal(err)
			}
		}
		if chain, err := s.Chain(t.Context()); err != nil || len(chain) != 4 || !bytes.Contains(chain[3].Body, []byte(`"3"`)) {
			t.Fatalf("the chain is %v, %v; want four entries", chain, err)
		}
		if _, err := s.db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Chain(t.Context()); !errors.Is(err, ErrBroken) {
			t.Errorf("%s: %v, want the chain broken", name, err)
		}
	}
}
