package api_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/pillarbox-dev/pillarbox/dashboard/access"
	"github.com/pillarbox-dev/pillarbox/dashboard/api"
	"github.com/pillarbox-dev/pillarbox/dashboard/mask"
	"github.com/pillarbox-dev/pillarbox/internal/pgtest"
	"github.com/pillarbox-dev/pillarbox/ops"
	"github.com/pillarbox-dev/pillarbox/outbox/schema"
	"github.com/pillarbox-dev/pillarbox/store/sqlite"
)

const (
	operator = "the operator's token"
	viewer   = "the viewer's token"
)

// box is an outbox in one of the databases with the API in front of it. Whatever it is asked, and answers, is held to the
// document.
type box struct {
	*testing.T
	db      *sql.DB
	dialect schema.Dialect
	ops     *ops.Ops
	handler http.Handler
	routes  routers.Router
	log     bytes.Buffer
	called  map[string]bool // "METHOD /path" of the document, answered with 2xx
}

// onBoth runs a test on both databases; in PostgreSQL in a schema whose name needs quotes.
func onBoth(t *testing.T, config api.Config, test func(b *box)) {
	for _, dialect := range []schema.Dialect{schema.Postgres, schema.SQLite} {
		t.Run(dialect.String(), func(t *testing.T) { test(newBox(t, dialect, config)) })
	}
}

func newBox(t *testing.T, dialect schema.Dialect, config api.Config) *box {
	t.Helper()
	b := &box{T: t, dialect: dialect, called: map[string]bool{}}
	name := ""
	var err error
	if dialect == schema.Postgres {
		name = `Out "box"`
		b.db, err = sql.Open("pgx", pgtest.Database(t))
	} else {
		b.db, err = sqlite.OpenDB(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "box.db")})
	}
	b.must(err)
	t.Cleanup(func() { b.db.Close() })
	_, err = schema.Migrate(t.Context(), b.db, dialect, name)
	b.must(err)
	if dialect == schema.Postgres {
		var database string
		b.must(b.db.QueryRowContext(t.Context(), "select current_database()").Scan(&database))
		b.exec(fmt.Sprintf(`alter role postgres in database %s set search_path to %s`, schema.Quote(database), schema.Quote(name)))
		b.db.SetMaxIdleConns(0) // new connections have the path
	}
	b.ops, err = ops.New(b.db, dialect, name)
	b.must(err)
	config.Ops, config.Log = b.ops, slog.New(slog.NewTextHandler(&b.log, nil))
	b.handler = asOperator(t, api.New(config))
	b.routes, err = legacy.NewRouter(b.document())
	b.must(err)
	return b
}

// document reads the document that the API serves.
func (b *box) document() *openapi3.T {
	b.Helper()
	document, err := openapi3.NewLoader().LoadFromData(b.send("GET", "/openapi.json", "").Body.Bytes())
	b.must(err)
	b.must(document.Validate(b.Context()))
	return document
}

func (b *box) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (b *box) exec(statement string, args ...any) {
	b.Helper()
	_, err := b.db.ExecContext(b.Context(), statement, args...)
	b.must(err)
}

// poison adds an event whose delivery to d is quarantined, and returns its number.
func (b *box) poison(id, payload, headers string) (seq int64) {
	b.Helper()
	const insert = `insert into outbox_event (event_id, topic_name, partition_key, event_type, payload, headers)
		values ($1, 'orders', 'k', 'OrderPlaced', $2, $3) returning seq`
	b.must(b.db.QueryRowContext(b.Context(), insert, id, payload, headers).Scan(&seq))
	b.exec(`insert into outbox_delivery (destination, seq, status, attempt_count, last_error_code, last_error_message)
		values ('d', $1, 'QUARANTINED', 3, 'HTTP_422', 'no such customer')`, seq)
	return seq
}

// destination adds the destination d, whose cursor has passed everything.
func (b *box) destination() {
	b.Helper()
	b.exec(`insert into outbox_cursor (destination, position) values ('d', 1000)`)
}

// send makes a request as the operator, without holding it to anything.
func (b *box) send(method, path, body string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	b.Helper()
	r := b.request(method, path, body, change...)
	w := httptest.NewRecorder()
	b.handler.ServeHTTP(w, r)
	return w
}

func (b *box) request(method, path, body string, change ...func(*http.Request)) *http.Request {
	b.Helper()
	var sent io.Reader
	if body != "" {
		sent = bytes.NewReader([]byte(body))
	}
	r := httptest.NewRequestWithContext(b.Context(), method, "http://outbox.example"+api.Prefix+path, sent)
	r.Header.Set("Authorization", "Bearer "+operator)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, c := range change {
		c(r)
	}
	return r
}

func as(token string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }
}

// call makes a request that the document allows, and holds the answer to it. into, unless nil, takes the answer.
func (b *box) call(method, path, body string, want int, into any, change ...func(*http.Request)) {
	b.Helper()
	if err := b.allowed(b.request(method, path, body, change...)); err != nil {
		b.Fatalf("%s %s %s is not what the document allows: %v", method, path, body, err)
	}
	b.answer(b.send(method, path, body, change...), method, path, body, want, into)
}

var options = &openapi3filter.Options{
	AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, IncludeResponseStatus: true, MultiError: true,
}

func (b *box) allowed(r *http.Request) error {
	input, err := b.input(r)
	if err != nil {
		return err
	}
	return openapi3filter.ValidateRequest(r.Context(), input)
}

func (b *box) input(r *http.Request) (*openapi3filter.RequestValidationInput, error) {
	relative := r.Clone(context.WithoutCancel(r.Context()))
	relative.URL.Scheme, relative.URL.Host = "", ""
	route, params, err := b.routes.FindRoute(relative)
	if err != nil {
		return nil, fmt.Errorf("no route for %s %s: %w", r.Method, r.URL, err)
	}
	return &openapi3filter.RequestValidationInput{Request: r, PathParams: params, Route: route, Options: options}, nil
}

func (b *box) answer(w *httptest.ResponseRecorder, method, path, body string, want int, into any) {
	b.Helper()
	if w.Code != want {
		b.Fatalf("%s %s %s: got %d %s, want %d; log: %s", method, path, body, w.Code, w.Body, want, &b.log)
	}
	input, err := b.input(b.request(method, path, ""))
	b.must(err)
	err = openapi3filter.ValidateResponse(b.Context(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: input, Status: w.Code, Header: w.Header(),
		Body: io.NopCloser(bytes.NewReader(w.Body.Bytes())), Options: options,
	})
	if err != nil {
		b.Fatalf("%s %s %s: the answer %d %s is not what the document says: %v", method, path, body, w.Code, w.Body, err)
	}
	if w.Code < 300 {
		b.called[input.Route.Method+" "+input.Route.Path] = true
	}
	if into != nil {
		b.must(json.Unmarshal(w.Body.Bytes(), into))
	}
}

// shown is a problem as a client reads it.
type shown struct {
	Type, Title, Detail, Hint string
	Status                    int
	Errors                    []struct{ Pointer, Parameter, Detail string }
	Current                   json.RawMessage
}

func (b *box) event(ref string, change ...func(*http.Request)) (e ops.EventDetail) {
	b.Helper()
	b.call("GET", "/events/"+ref, "", 200, &e, change...)
	return e
}

// version is that of the event's delivery to d.
func (b *box) version(ref string) string {
	b.Helper()
	e := b.event(ref)
	if len(e.Deliveries) != 1 || e.Deliveries[0].Version == "" {
		b.Fatalf("event %s has the deliveries %+v", ref, e.Deliveries)
	}
	return e.Deliveries[0].Version
}

var masked = api.Config{Mask: mask.New([]string{"iban", "token"})}

// asOperator lets everybody in who has the operator's token.
func asOperator(t *testing.T, handler http.Handler) http.Handler {
	t.Helper()
	guard, err := access.New(access.Config{Tokens: []access.Credential{
		{Name: "alarm", Role: access.Operator, Secret: func() (string, error) { return operator, nil }},
		{Name: "screen", Role: access.Viewer, Secret: func() (string, error) { return viewer, nil }},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return guard.WrapAPI(handler, api.Refuse)
}
