package dashboard

import (
	"context"
	"database/sql"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pillarbox-dev/pillarbox/ops"
	"github.com/pillarbox-dev/pillarbox/outbox"
	"github.com/pillarbox-dev/pillarbox/outbox/schema"
	"github.com/pillarbox-dev/pillarbox/store/sqlite"
)

// site is a dashboard over an outbox in SQLite, served as it would be.
type site struct {
	*testing.T
	db      *sql.DB
	dialect schema.Dialect
	ops     *ops.Ops
	board   *Dashboard
	server  *httptest.Server
}

// newSite serves a dashboard; change adds to its configuration.
func newSite(t *testing.T, change func(*Config)) *site {
	t.Helper()
	db, err := sqlite.OpenDB(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "box.db")})
	return newSiteOver(t, db, err, schema.SQLite, change)
}

// newSiteOver serves a dashboard over a database without tables, of which err is what opening it has come to.
func newSiteOver(t *testing.T, db *sql.DB, err error, dialect schema.Dialect, change func(*Config)) *site {
	t.Helper()
	s := &site{T: t, db: db, dialect: dialect}
	s.must(err)
	t.Cleanup(func() { s.db.Close() })
	name := map[schema.Dialect]string{schema.Postgres: "public"}[dialect]
	_, err = schema.Migrate(t.Context(), s.db, dialect, name)
	s.must(err)
	s.ops, err = ops.New(s.db, dialect, name)
	s.must(err)
	c := Config{Ops: s.ops, Logger: slog.New(slog.NewTextHandler(testLog{t}, nil))}
	if change != nil {
		change(&c)
	}
	s.board = New(c)
	s.server = httptest.NewServer(s.board)
	t.Cleanup(s.server.Close)
	return s
}

func (s *site) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// quarantined adds an event that destination d has rejected, and returns its number.
func (s *site) quarantined(e outbox.Event) int64 {
	s.Helper()
	dialects := map[schema.Dialect]outbox.Dialect{schema.SQLite: outbox.SQLite, schema.Postgres: outbox.Postgres}
	box, err := outbox.New(dialects[s.dialect], outbox.Options{})
	s.must(err)
	tx, err := s.db.BeginTx(s.Context(), nil)
	s.must(err)
	defer tx.Rollback()
	results, err := box.Enqueue(s.Context(), tx, e)
	s.must(err)
	var seq int64
	s.must(tx.QueryRowContext(s.Context(), `select seq from outbox_event where event_id = $1`, results[0].ID).Scan(&seq))
	_, err = tx.ExecContext(s.Context(), `insert into outbox_cursor (destination, position) values ('d', $1)
		on conflict (destination, shard) do update set position = $1`, seq)
	s.must(err)
	at := map[schema.Dialect]string{schema.SQLite: "1764460000123456", schema.Postgres: "clock_timestamp()"}[s.dialect]
	_, err = tx.ExecContext(s.Context(), `insert into outbox_delivery (destination, seq, status, attempt_count, endpoint,
			last_attempt_at, last_error_code, last_error_message)
		values ('d', $1, 'QUARANTINED', 1, '', `+at+`, 'HTTP_422', 'no such <b>customer</b>')`, seq)
	s.must(err)
	s.must(tx.Commit())
	return seq
}

func (s *site) status(seq int64) (status string) {
	s.Helper()
	const query = `select status from outbox_delivery where destination = 'd' and seq = ?1`
	s.must(s.db.QueryRowContext(s.Context(), query, seq).Scan(&status))
	return status
}

// get returns a page.
func (s *site) get(path string, headers ...string) (int, string) {
	s.Helper()
	return s.send(http.MethodGet, path, nil, headers...)
}

// post sends a form, and follows where it leads back to.
func (s *site) post(path string, form url.Values, headers ...string) (int, string) {
	s.Helper()
	return s.send(http.MethodPost, path, form, headers...)
}

func (s *site) send(method, path string, form url.Values, headers ...string) (int, string) {
	s.Helper()
	request, err := http.NewRequestWithContext(s.Context(), method, s.server.URL+path, strings.NewReader(form.Encode()))
	s.must(err)
	if method == http.MethodPost {
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
		if headers[i] == "Host" {
			request.Host = headers[i+1]
		}
	}
	answer, err := http.DefaultClient.Do(request)
	s.must(err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	s.must(err)
	return answer.StatusCode, string(body)
}

// form is what the page of an event sends.
func (s *site) form(seq int64, more ...string) url.Values {
	s.Helper()
	detail, err := s.ops.Show(s.Context(), ops.EventRef{Seq: seq})
	s.must(err)
	v := url.Values{"version": {detail.Deliveries[0].Version}}
	for i := 0; i < len(more); i += 2 {
		v.Set(more[i], more[i+1])
	}
	return v
}

func event(payload string) outbox.Event {
	return outbox.Event{
		Topic: "t", Type: "Placed", Key: "k", Payload: json.RawMessage(payload), Headers: map[string]string{"tenantId": "n"},
	}
}

// testLog fails a test when the dashboard logs an error.
type testLog struct{ t *testing.T }

func (l testLog) Write(p []byte) (int, error) {
	if strings.Contains(string(p), "level=ERROR") {
		l.t.Errorf("the dashboard logs: %s", p)
	}
	return len(p), nil
}

// run keeps the dashboard going until the returned function is called.
func (s *site) run() (stop func()) {
	ctx, cancel := context.WithCancel(s.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.board.Run(ctx)
	}()
	return func() {
		cancel()
		<-ended
	}
}
