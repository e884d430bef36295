package http

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/pillarbox-dev/pillarbox/internal/pgtest"
	"github.com/pillarbox-dev/pillarbox/outbox/schema"
	"github.com/pillarbox-dev/pillarbox/relay"
)

// The rows of outbox_endpoint, read by each store's own driver from its own table.
func TestLoadTable(t *testing.T) {
	const schemaName = `the "outbox"`
	url := pgtest.Database(t)
	postgres := openDB(t, "pgx", url)
	sqlite := openDB(t, "sqlite", "file:"+filepath.Join(t.TempDir(), "log.db"))
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	for _, tt := range []struct {
		name       string
		db         *sql.DB
		dialect    schema.Dialect
		schemaName string
		table      string
		load       func(context.Context) (map[string]Endpoint, error)
	}{
		{"pgx", postgres, schema.Postgres, schemaName, schema.Quote(schemaName) + ".outbox_endpoint",
			LoadTable(pool.Query, PostgresEndpoints(schemaName), "suppliers")},
		{"database/sql", postgres, schema.Postgres, "public", "public.outbox_endpoint",
			LoadTable(postgres.QueryContext, PostgresEndpoints("public"), "suppliers")},
		{"SQLite", sqlite, schema.SQLite, "", "outbox_endpoint",
			LoadTable(sqlite.QueryContext, SQLiteEndpoints(), "suppliers")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got, err := tt.load(t.Context()); err == nil {
				t.Errorf("without the table: %v, no error", got)
			}
			if _, err := schema.Migrate(t.Context(), tt.db, tt.dialect, tt.schemaName); err != nil {
				t.Fatal(err)
			}
			if got, err := tt.load(t.Context()); err != nil || len(got) != 0 {
				t.Errorf("from an empty table: %v, %v", got, err)
			}
			insert := "insert into " + tt.table +
				" (destination, endpoint, url, secret_file, token_file, max_in_flight, enabled) values "
			yes, no := "true", "false"
			if tt.dialect == schema.SQLite {
				yes, no = "1", "0"
			}
			rows := []string{
				"('suppliers', 'plain', 'https://plain.example', null, null, null, " + yes + ")",
				"('suppliers', 'full', 'https://full.example/in', 'new , old', 'token', 7, " + yes + ")",
				"('suppliers', 'off', 'https://off.example', '', '', 0, " + no + ")",
				"('others', 'plain', 'https://others.example', null, null, null, " + yes + ")",
			}
			if _, err := tt.db.ExecContext(t.Context(), insert+strings.Join(rows, ", ")); err != nil {
				t.Fatal(err)
			}
			want := map[string]Endpoint{
				"plain": {URL: "https://plain.example"},
				"full":  {URL: "https://full.example/in", SecretFiles: []string{"new", "old"}, TokenFile: "token", MaxInFlight: 7},
				"off":   {URL: "https://off.example", Disabled: true},
			}
			if got, err := tt.load(t.Context()); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("load = %+v, %v, want %+v", got, err, want)
			}
		})
	}
}

func openDB(t *testing.T, driver, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// brokenRows fail while they are read, and note that they were closed.
type brokenRows struct{ closed bool }

func (r *brokenRows) Next() bool        { return true }
func (r *brokenRows) Scan(...any) error { return errors.New("cut off") }
func (r *brokenRows) Err() error        { return nil }
func (r *brokenRows) Close() error      { r.closed = true; return nil }

func TestLoadTableClosesWhatBreaks(t *testing.T) {
	rows := new(brokenRows)
	load := LoadTable(func(context.Context, string, ...any) (*brokenRows, error) { return rows, nil }, "", "")
	if _, err := load(t.Context()); err == nil || !rows.closed {
		t.Errorf("error %v, closed %v, want the rows closed and an error", err, rows.closed)
	}
}

// tableOf is a Table over endpoints that a test changes.
type source struct {
	mu        sync.Mutex
	endpoints map[string]Endpoint
	err       error
	loads     atomic.Int32
}

func (s *source) set(err error, endpoints map[string]Endpoint) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err, s.endpoints = err, endpoints
}

func (s *source) load(context.Context) (map[string]Endpoint, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loads.Add(1)
	if s.err != nil {
		return nil, s.err
	}
	known := map[string]Endpoint{}
	for name, e := range s.endpoints {
		known[name] = e
	}
	return known, nil
}

// An endpoint that was added with the event itself is found at once; one that is not there, or is disabled, keeps its events
// waiting; and a database that does not answer says nothing about an endpoint.
func TestTableEndpoints(t *testing.T) {
	server := newServer(t, status(200))
	var from source
	var now atomic.Int64
	table := NewTable(TableConfig{Load: from.load, Now: func() time.Time { return time.Unix(now.Load(), 0) }})
	d, err := New(Config{Endpoints: table, AllowPrivate: true})
	if err != nil {
		t.Fatal(err)
	}
	published := relay.Outcome{Kind: relay.Published, Receipt: "200"}
	waits := func(message string) relay.Outcome {
		return relay.Outcome{Kind: relay.Unavailable, Code: CodeConfig, Pause: true, Message: message}
	}
	to := func(name string) *relay.Event { return newEvent(func(e *relay.Event) { e.Key = name }) }
	later := func() { now.Add(2) }

	from.set(errors.New("database is down"), nil)
	down := relay.Outcome{Kind: relay.Unavailable, Code: CodeConfig, Message: "database is down"}
	same(t, deliver(t, d, to("a")), down)
	same(t, deliver(t, d, to("")), down) // there may be an endpoint for what names none
	from.set(nil, map[string]Endpoint{"a": {URL: server.URL}, "off": {URL: server.URL, Disabled: true}})
	later()
	same(t, deliver(t, d, to("a")), published)
	same(t, deliver(t, d, to("off")), waits("is disabled"))
	same(t, deliver(t, d, to("b")), waits(`"b" is not known`))
	for range 20 {
		deliver(t, d, to("b"))
	}
	if n := from.loads.Load(); n != 2 {
		t.Errorf("%d loads, want 2: an unknown endpoint may not load the table for each of its events", n)
	}
	from.set(nil, map[string]Endpoint{"a": {URL: server.URL}, "b": {URL: server.URL}})
	later()
	same(t, deliver(t, d, to("b")), published)
	from.set(errors.New("database is down"), nil)
	later()
	same(t, deliver(t, d, to("a")), published) // known is known
	same(t, deliver(t, d, to("c")), down)

	from.set(nil, map[string]Endpoint{"bad": {URL: "ftp://x"}, "file": {URL: server.URL, TokenFile: "/etc/hostname"}})
	later()
	same(t, deliver(t, d, to("bad")), waits(`scheme "ftp"`))
	same(t, deliver(t, d, to("file")), waits("credential_folder is not set"))
	same(t, deliver(t, d, to("a")), waits("is not known"))
	same(t, deliver(t, d, to("")), *reject(CodeNoTarget, "no partition key"))
	if problems := d.Check(t.Context()); len(problems) != 2 {
		t.Errorf("Check = %v, want the two of the endpoints", problems)
	}
	from.set(errors.New("database is down"), nil)
	later()
	if problems := fmt.Sprint(d.Check(t.Context())); !strings.Contains(problems, "database is down") {
		t.Errorf("Check = %v, want the database's error", problems)
	}
}

func TestTableRun(t *testing.T) {
	var from source
	from.set(errors.New("not yet"), nil)
	table := NewTable(TableConfig{Load: from.load, Every: 5 * time.Millisecond})
	ctx, cancel := context.WithCancel(t.Context())
	var reports atomic.Int32
	var run sync.WaitGroup
	run.Go(func() { table.Run(ctx, func(error) { reports.Add(1) }) })
	eventually(t, "a failed load is reported", func() bool { return reports.Load() > 0 })
	from.set(nil, map[string]Endpoint{"a": {URL: "https://one.example"}})
	eventually(t, "a is known", func() bool { _, ok := table.Lookup("a"); return ok })
	from.set(nil, map[string]Endpoint{"b": {URL: "https://two.example"}})
	eventually(t, "b is known and a is not", func() bool { return reflect.DeepEqual(table.Names(), []string{"b"}) })
	cancel()
	run.Wait()
}

// A load that hangs does not hold deliveries back beyond their own time.
func TestTableLoadHangs(t *testing.T) {
	hangs := make(chan struct{})
	table := NewTable(TableConfig{Load: func(ctx context.Context) (map[string]Endpoint, error) {
		select {
		case <-hangs:
		case <-ctx.Done():
		}
		return nil, ctx.Err()
	}})
	d, err := New(Config{Endpoints: table})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var run sync.WaitGroup
	run.Go(func() { table.Run(ctx, func(error) {}) })
	eventually(t, "the load has begun", func() bool { return len(table.loading) == 1 })
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	same(t, deliverIn(short, t, d, newEvent()), relay.Outcome{Kind: relay.Unavailable, Code: CodeTimeout})
	shutdown, end := context.WithCancelCause(t.Context())
	time.AfterFunc(50*time.Millisecond, func() { end(relay.ErrShutdown) })
	same(t, deliverIn(shutdown, t, d, newEvent()), relay.Outcome{Kind: relay.Released})
	stop()
	close(hangs)
	run.Wait()
}
