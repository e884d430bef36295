package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
)

// Suppliers in both languages refuse what is not signed, with an empty 401, and take an event once.
func TestSuppliersVerify(t *testing.T) {
	o := worldOptions{dir: t.TempDir(), node: node(t), retry: testRetry}
	w, err := newWorld(t.Context(), o)
	must(t, err)
	t.Cleanup(func() { must(t, w.stop()) })
	c, err := loadConfig(w.config)
	must(t, err)
	for _, name := range []string{"initech", "globex", "acme"} {
		s := c.Suppliers[name]
		read := func(file string) string {
			text, err := os.ReadFile(file)
			must(t, err)
			return strings.TrimSpace(string(text))
		}
		token := ""
		if s.TokenFile != "" {
			token = read(s.TokenFile)
		}
		id := newUUID()
		body := fmt.Sprintf(`{"hub_uuid":%q, "n":1.0}`, id)
		right := sign(read(s.SecretFile), body)
		other := fmt.Sprintf(`{"hub_uuid":%q, "n":1}`, id)
		for _, test := range []struct {
			name, id, body, signature, token string
			status                           int
			answer                           string
		}{
			{"no signature", id, body, "", token, 401, ""},
			{"a short signature", id, body, right[:20], token, 401, ""},
			{"no ASCII", id, body, "sha256=é", token, 401, ""},
			{"another secret", id, body, sign("another", body), token, 401, ""},
			{"another body", id, other, right, token, 401, ""},
			{"another token", id, body, right, "other", 401, ""},
			{"another id", newUUID(), body, right, token, 400, "error"},
			{"right", id, body, right, token, 200, `{"duplicate":false}`},
			{"again", id, body, right, token, 200, `{"duplicate":true}`},
			{"the id with another body", id, other, sign(read(s.SecretFile), other), token, 422, "error"},
		} {
			if test.token == "other" && token == "" {
				continue // it asks for none
			}
			status, answer := post(t, s.HubRegistrationURL, test.body, map[string]string{
				"X-LinkOStar-Idempotency-Key": test.id, "X-LinkOStar-Signature": test.signature, "Authorization": "Bearer " + test.token,
			})
			if status != test.status || !strings.Contains(answer, test.answer) || status == 401 && answer != "" {
				t.Errorf("%s, %s: got %d %q, want %d %q", name, test.name, status, answer, test.status, test.answer)
			}
		}
	}
	inbox, err := w.inbox(t.Context())
	must(t, err)
	if len(inbox.Received) != 3 || inbox.Duplicates != 3 {
		text, _ := json.Marshal(inbox)
		t.Errorf("the inboxes hold %s, want one of each and a duplicate", text)
	}
}

func post(t *testing.T, url, body string, header map[string]string) (status int, answer string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	must(t, err)
	r.Header.Set("Content-Type", "application/json")
	for name, value := range header {
		if value != "" {
			r.Header.Set(name, value)
		}
	}
	got, err := http.DefaultClient.Do(r)
	must(t, err)
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	must(t, err)
	return got.StatusCode, string(text)
}
