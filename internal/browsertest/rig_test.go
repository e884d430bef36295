package browsertest

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/internal/config"
	"github.com/pillarbox-dev/pillarbox/internal/wire"
	"github.com/pillarbox-dev/pillarbox/ops"
	"github.com/pillarbox-dev/pillarbox/outbox"
	"github.com/pillarbox-dev/pillarbox/outbox/schema"
)

// rig is a relay as `pillarbox run` runs it, on SQLite, with a service that writes events and a receiver that takes them.
type rig struct {
	t        *testing.T
	address  string // of the dashboard
	db       *sql.DB
	ops      *ops.Ops
	box      *outbox.Outbox
	receiver *receiver
	log      *lines
}

const settings = `
database: {url: %q}
listen: 127.0.0.1:0
log: {attempts: false}
relay: {lease: 3s, owner: relay-1}
destinations:
  suppliers:
    topics: ["orders.*"]
    timeout: 1s
    http: {url: %q, allow_private: true}
    retry: {base: 1h, jitter: 0}
    guard: {enabled: false}
  audit:
    topics: ["audit"]
    timeout: 1s
    http: {url: %q, allow_private: true}
    breaker: {probe: 1m}
  search:
    topics: ["search.*"]
    timeout: 1s
    http: {url: %q, allow_private: true}
%s`

// newRig starts everything. more is added to the configuration.
func newRig(t *testing.T, more string) *rig {
	t.Helper()
	r := &rig{t: t, receiver: newReceiver(t)}
	path := filepath.Join(t.TempDir(), "box.db")
	to := r.receiver.url
	text := fmt.Sprintf(settings, "sqlite://"+path, to+"/suppliers", to+"/audit", to+"/search", more)
	c, err := config.Parse("pillarbox.yaml", []byte(text), func(string) (string, bool) { return "", false })
	r.must(err)
	r.db, err = wire.OpenDB(t.Context(), c.Database, true)
	r.must(err)
	t.Cleanup(func() { r.db.Close() })
	_, err = schema.Migrate(t.Context(), r.db, schema.SQLite, "")
	r.must(err)
	r.ops, err = ops.New(r.db, schema.SQLite, "")
	r.must(err)
	r.box, err = outbox.New(outbox.SQLite, outbox.Options{})
	r.must(err)
	r.log = &lines{}
	p, err := wire.NewProcess(t.Context(), c, slog.New(slog.NewTextHandler(r.log, nil)))
	r.must(err)
	r.address = "http://" + p.Addr
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("the relay ended with %v", err)
		}
		p.Close()
		if text := r.log.String(); strings.Contains(text, "level=ERROR") {
			t.Errorf("the relay's log has errors:\n%s", text)
		}
	})
	return r
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// enqueue commits an event and returns its number.
func (r *rig) enqueue(e outbox.Event) int64 {
	r.t.Helper()
	tx, err := r.db.BeginTx(r.t.Context(), nil)
	r.must(err)
	defer tx.Rollback()
	results, err := r.box.Enqueue(r.t.Context(), tx, e)
	r.must(err)
	r.must(tx.Commit())
	var seq int64
	r.must(r.db.QueryRowContext(r.t.Context(), `select seq from outbox_event where event_id = ?1`, results[0].ID).Scan(&seq))
	return seq
}

func order(n int, body string) outbox.Event {
	return outbox.Event{
		Topic: "orders.placed", Key: fmt.Sprintf("order-%04d", n), Type: "OrderPlaced", Payload: json.RawMessage(body),
		AggregateType: "order", AggregateID: fmt.Sprintf("order-%04d", n), AggregateVersion: 1,
		Headers: map[string]string{"correlationId": fmt.Sprintf("c-%04d", n), "tenantId": "nordwind", "producer": "shop"},
	}
}

// goodOrder is what the receiver takes, and badOrder what it refuses.
func goodOrder(n int) string {
	return fmt.Sprintf(`{"order":"order-%04d","customer":{"name":"Ada Example","city":"Zürich"},`+
		`"lines":[{"sku":"LAMP-2","quantity":1,"price":49.90}],"total":49.90}`, n)
}

func badOrder(n int) string {
	return strings.Replace(goodOrder(n), `"quantity":1`, `"quantity":"twelve"`, 1)
}

// until waits until something holds, and fails when it does not in time.
func (r *rig) until(what string, holds func() bool) {
	r.t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !holds() {
		if time.Now().After(deadline) {
			r.t.Fatalf("%s: it has not come to that", what)
		}
		select {
		case <-r.t.Context().Done():
			r.t.Fatal(r.t.Context().Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// status is that of one delivery; "" while it has none.
func (r *rig) status(destination string, seq int64) string {
	r.t.Helper()
	var status string
	err := r.db.QueryRowContext(r.t.Context(),
		`select status from outbox_delivery where destination = ?1 and seq = ?2`, destination, seq).Scan(&status)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		r.t.Fatal(err)
	}
	return status
}

// receiver takes what is sound. What is not, it rejects; and one of its paths is down.
type receiver struct {
	url string
	mu  sync.Mutex
	got map[string]string // event id → body
}

func newReceiver(t *testing.T) *receiver {
	r := &receiver{got: map[string]string{}}
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	r.url = server.URL
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(request.Body)
	switch {
	case err != nil:
		return
	case request.URL.Path == "/audit":
		w.Header().Set("Retry-After", "60")
		http.Error(w, "down for maintenance", http.StatusServiceUnavailable)
		return
	case strings.Contains(string(body), `"twelve"`):
		http.Error(w, `{"error":"lines[0].quantity: want a number, got \"twelve\""}`, http.StatusUnprocessableEntity)
		return
	case strings.Contains(string(body), `"busy"`):
		http.Error(w, "try again later", http.StatusInternalServerError)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.got[request.Header.Get("Idempotency-Key")] = string(body)
}

func (r *receiver) bodies() (all []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, body := range r.got {
		all = append(all, body)
	}
	return all
}

// lines is a log that can be read.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
