package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/examples/approvals/approval"
	"github.com/pillarbox-dev/pillarbox/examples/approvals/audit"
	"github.com/pillarbox-dev/pillarbox/internal/reckon"
	"github.com/pillarbox-dev/pillarbox/outbox/webhook"
	"github.com/pillarbox-dev/pillarbox/store/sqlite"
)

// The demo keeps every promise on both databases, with the relay inside and beside, and prints one object with these keys.
func TestDemo(t *testing.T) {
	for name, flags := range map[string][]string{"sqlite": {"--relay-beside"}, "postgres": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out, progress bytes.Buffer
			args := append([]string{"--duration", "6s", "--json", "--database", databases[name](t)}, flags...)
			if err := (&program{stdout: &out, stderr: &progress}).run(t.Context(), args); err != nil {
				t.Fatalf("%v\n%s", err, progress.String())
			}
			var r map[string]float64
			must(t, json.Unmarshal(out.Bytes(), &r))
			keys := []string{"committed", "delivered", "duplicates", "false", "lost", "out_of_order", "quarantined", "relay_kills",
				"rolled_back", "seconds"}
			if got := slices.Sorted(maps.Keys(r)); !slices.Equal(got, keys) {
				t.Errorf("keys = %q, want %q", got, keys)
			}
			if r["lost"] != 0 || r["false"] != 0 || r["out_of_order"] != 0 || r["quarantined"] != 0 || r["delivered"] != r["committed"] {
				t.Errorf("reckoning = %v, want everything delivered", r)
			}
			if r["committed"] < 20 || r["rolled_back"] < 1 || r["relay_kills"] != 2 {
				t.Errorf("reckoning = %v, want that much happened", r)
			}
			for _, chapter := range []string{
				"the dashboard, for as long as this runs: http://127.0.0.1:", "accepts a new token", "the file follows",
				"killed with SIGKILL",
				"approvals were revoked while the audit store was down", "is slow",
			} {
				if !strings.Contains(progress.String(), chapter) {
					t.Errorf("the story lacks %q:\n%s", chapter, progress.String())
				}
			}
		})
	}
}

// Ctrl-C ends the demo early, with the reckoning.
func TestDemoEndsEarly(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var out bytes.Buffer
	progress := listener{word: "the audit store is up", heard: func() { time.AfterFunc(2*time.Second, stop) }}
	if err := (&program{stdout: &out, stderr: &progress}).run(ctx, []string{"--duration", "10m", "--listen", ""}); err != nil {
		t.Fatalf("%v\n%s", err, progress.String())
	}
	for _, want := range []string{"committed", "The audit store's chain holds", "Every promise was kept."} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the reckoning lacks %q:\n%s", want, out.String())
		}
	}
}

// listener keeps a story, and calls heard when a line of it has the word.
type listener struct {
	bytes.Buffer
	word  string
	heard func()
}

func (l *listener) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte(l.word)) {
		l.heard()
	}
	return l.Buffer.Write(line)
}

// An audit store that breaks its word is found out: it forgets, it makes things up, it turns the order around.
func TestReckoningFindsALie(t *testing.T) {
	b := newBench(t, "sqlite", nil)
	service := b.office()
	for range 3 {
		_, err := service.Revoke(t.Context(), b.issued(service), approval.Act{Actor: "user:ann"})
		must(t, err)
	}
	b.drained()
	chain, err := b.audit.Chain(t.Context())
	must(t, err)
	made := func(id string) audit.Entry {
		return audit.Entry{EventID: id, Body: []byte(`{"id":` + quoted(id) + `}`)}
	}
	for name, tt := range map[string]struct {
		chain []audit.Entry
		want  reckon.Reckoning
	}{
		"honest":      {chain, reckon.Reckoning{Committed: 6, Delivered: 6}},
		"forgets":     {chain[:5], reckon.Reckoning{Committed: 6, Delivered: 5, Lost: 1}},
		"makes it up": {append(slices.Clone(chain), made("x")), reckon.Reckoning{Committed: 6, Delivered: 6, False: 1}},
		"turns around": {append([]audit.Entry{chain[1], chain[0]}, chain[2:]...),
			reckon.Reckoning{Committed: 6, Delivered: 6, OutOfOrder: 1}},
	} {
		r, _, err := reckonAll(t.Context(), b.db, b.rewritten(tt.chain))
		must(t, err)
		if r.Codes = nil; !reflect.DeepEqual(r, tt.want) || r.Kept() != (name == "honest") {
			t.Errorf("%s: %+v, want %+v", name, r, tt.want)
		}
	}
}

// rewritten is a store whose chain holds, of other entries.
func (b *bench) rewritten(chain []audit.Entry) *sql.DB {
	b.Helper()
	path := filepath.Join(b.TempDir(), "audit.db")
	other, err := audit.New(b.Context(), path, b.secrets[0], []byte(b.secrets[1]))
	must(b, err)
	b.Cleanup(func() { other.Close() })
	for _, e := range chain {
		request := httptest.NewRequestWithContext(b.Context(), http.MethodPost, "/events", bytes.NewReader(e.Body))
		request.Header.Set("Authorization", "Bearer "+b.secrets[0])
		request.Header.Set("Idempotency-Key", e.EventID)
		request.Header.Set(audit.SignatureHeader, webhook.SignHex([]byte(b.secrets[1]), e.Body))
		answer := httptest.NewRecorder()
		other.ServeHTTP(answer, request)
		if answer.Code != http.StatusAccepted {
			b.Fatalf("the other store answered %d", answer.Code)
		}
	}
	db, err := sqlite.OpenDB(b.Context(), sqlite.Config{Path: path})
	must(b, err)
	b.Cleanup(func() { db.Close() })
	return db
}

// What is wrong with a command line is told at once; a database that another audit store has seen is refused.
func TestRefusals(t *testing.T) {
	refused := func(want string, args ...string) {
		t.Helper()
		var out, errOut bytes.Buffer
		err := (&program{stdout: &out, stderr: &errOut}).run(t.Context(), args)
		if err == nil || !strings.Contains(err.Error(), want) || out.Len() > 0 {
			t.Errorf("%q: %v and %q, want %q", args, err, out.String(), want)
		}
	}
	refused("there are arguments that are no flags: more\n--duration is 1ms: it can be 1s to 1h", "--duration", "1ms", "more")
	b := newBench(t, "sqlite", nil)
	service, err := newService(b.db, seams{}, func() {})
	must(t, err)
	b.issued(service)
	refused("give an empty one", "--database", b.settings.Database)
}
