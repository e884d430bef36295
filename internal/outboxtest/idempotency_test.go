package outboxtest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pillarbox-dev/pillarbox/internal/pgtest"
	"github.com/pillarbox-dev/pillarbox/outbox"
	"github.com/pillarbox-dev/pillarbox/outbox/idempotency"
)

func newKeeper(t testing.TB, b backend, opts idempotency.Options) *idempotency.Keeper {
	t.Helper()
	var d outbox.Dialect
	d, opts.Schema = b.where()
	k, err := idempotency.New(d, opts)
	must(t, err)
	return k
}

func TestIdempotencyDo(t *testing.T) {
	everywhere(t, func(t *testing.T, b backend) {
		k := newKeeper(t, b, idempotency.Options{Keep: time.Hour, MaxBodyBytes: 1000})
		calls := 0
		respond := func(r idempotency.Response, err error) func(context.Context) (idempotency.Response, error) {
			return func(context.Context) (idempotency.Response, error) { calls++; return r, err }
		}
		do := func(tx transaction, key, operation, request string, r idempotency.Response, fail error) (idempotency.Response, bool, error) {
			return k.Do(t.Context(), tx.Tx, key, operation, []byte(request), respond(r, fail))
		}
		created := idempotency.Response{Status: 201, Body: []byte("\x00\xff{ }"), Header: http.Header{
			"Location": {"/cases/1"}, "Content-Type": {"a/b; c=\"ü\""}, "Set-Cookie": {"secret"}, "Etag": {"1", "2"}}}
		stored := idempotency.Response{Status: 201, Body: created.Body, Header: http.Header{
			"Location": {"/cases/1"}, "Content-Type": {"a/b; c=\"ü\""}, "Etag": {"1", "2"}}}

		tx := b.begin() // the handler fails
		if _, _, err := do(tx, "k", "create", "x", created, errHandler); !errors.Is(err, errHandler) {
			t.Errorf("got %v, want the handler's error", err)
		}
		must(t, tx.Rollback())
		tx = b.begin() // it panics
		func() {
			defer func() { _ = recover(); must(t, tx.Rollback()) }()
			_, _, _ = k.Do(t.Context(), tx.Tx, "k", "create", nil, func(context.Context) (idempotency.Response, error) { panic("x") })
		}()

		calls = 0
		for attempt := range 3 {
			tx := b.begin()
			got, replayed, err := do(tx, "k", "create", "x", created, nil)
			want := stored
			if attempt == 0 {
				want = created
			}
			if err != nil || replayed != (attempt > 0) || !reflect.DeepEqual(got, want) {
				t.Errorf("attempt %d: got %v, %v, %v; want %v", attempt, got, replayed, err, want)
			}
			must(t, tx.Commit())
		}
		if calls != 1 {
			t.Errorf("fn ran %d times, want once", calls)
		}

		tx = b.begin()
		if _, _, err := do(tx, "k", "create", "y", created, nil); !errors.Is(err, idempotency.ErrDifferentRequest) {
			t.Errorf("another request: got %v", err)
		}
		if got, replayed, err := do(tx, "k", "delete", "y", idempotency.Response{}, nil); err != nil || replayed || got.Status != 200 {
			t.Errorf("another operation: got %v, %v, %v", got, replayed, err)
		}
		if got, replayed, err := do(tx, "k", "delete", "y", created, nil); err != nil || !replayed || len(got.Body) != 0 || got.Status != 200 {
			t.Errorf("an empty response, again: got %v, %v, %v", got, replayed, err)
		}
		for _, key := range []string{"", "a b", "é", "a\x00", strings.Repeat("k", 256)} {
			if _, _, err := do(tx, key, "create", "", created, nil); !errors.Is(err, idempotency.ErrKey) {
				t.Errorf("key %q: got %v", key, err)
			}
		}
		must(t, tx.Commit())
		for _, r := range []idempotency.Response{{Status: 199}, {Status: 600}, {Body: make([]byte, 1001)}} {
			tx := b.begin()
			if _, _, err := do(tx, "other", "create", "", r, nil); !errors.Is(err, idempotency.ErrResponse) {
				t.Errorf("%d, %d bytes: got %v", r.Status, len(r.Body), err)
			}
			must(t, tx.Rollback())
		}

		// Beyond its time the key is as good as new, also before it is pruned; and a claim that was committed without a response is.
		past := "clock_timestamp()"
		if d, _ := b.where(); d == outbox.SQLite {
			past = "1"
		}
		run(t, b.db, "update "+b.table("outbox_idempotency")+" set expires_at = "+past)
		tx = b.begin()
		if got, replayed, err := do(tx, "k", "create", "new", created, nil); err != nil || replayed || got.Status != 201 {
			t.Errorf("after its time: got %v, %v, %v", got, replayed, err)
		}
		if n, err := k.Prune(t.Context(), tx.Tx, 10); err != nil || n != 1 {
			t.Errorf("Prune = %d, %v; want the one that was not used anew", n, err)
		}
		if _, _, err := do(tx, "unfinished", "create", "", created, errHandler); !errors.Is(err, errHandler) {
			t.Error(err)
		}
		must(t, tx.Commit())
		tx = b.begin()
		if _, replayed, err := do(tx, "unfinished", "create", "", created, nil); err != nil || replayed {
			t.Errorf("after a claim without a response: got %v, %v", replayed, err)
		}
	})
}

func TestIdempotencyTwin(t *testing.T) {
	everywhere(t, func(t *testing.T, b backend) {
		d, _ := b.where()
		if d == outbox.SQLite {
			b.begin = func() transaction {
				tx := beginSQL(t, b.db)
				must(t, tx.exec("pragma busy_timeout = 100"))
				return tx
			}
		}
		k := newKeeper(t, b, idempotency.Options{Wait: 100 * time.Millisecond})
		one := func(context.Context) (idempotency.Response, error) {
			return idempotency.Response{Body: []byte("one")}, nil
		}
		holder, second := b.begin(), b.begin()
		_, _, err := k.Do(t.Context(), holder.Tx, "k", "o", nil, one)
		must(t, err)
		if _, _, err := k.Do(t.Context(), second.Tx, "k", "o", nil, one); !errors.Is(err, idempotency.ErrInFlight) {
			t.Errorf("while the twin is open: got %v", err)
		}
		if d == outbox.Postgres {
			must(t, second.exec("do $$ begin assert current_setting('lock_timeout') = '0'; end $$"))
		} else {
			must(t, second.Rollback())
		}
		must(t, holder.Commit())
		if d == outbox.SQLite {
			second = b.begin()
		}
		r, replayed, err := k.Do(t.Context(), second.Tx, "k", "o", nil, one)
		if err != nil || !replayed || string(r.Body) != "one" {
			t.Errorf("after the twin's commit: got %v, %v, %v", r, replayed, err)
		}
	})
}

// service is a command's handler on a database, which makes a change and enqueues its event.
type service struct {
	backend
	handler http.Handler
	fail    func() (idempotency.Response, error)
	counts  []string
	mu      sync.Mutex
}

// services are one on each database, with both drivers.
func services(t *testing.T, test func(t *testing.T, s *service)) {
	t.Helper()
	for _, driver := range []string{"database/sql", "pgx", "SQLite"} {
		t.Run(driver, func(t *testing.T) {
			s := &service{}
			switch driver {
			case "database/sql":
				s.backend = onPostgres(t, pgtest.Database(t))
				serve(t, s, outbox.BeginSQL(s.db, nil), execSQL)
			case "pgx":
				url := pgtest.Database(t)
				s.backend = onPostgres(t, url)
				pool := newPool(t, url)
				serve(t, s, outbox.BeginPgx(pool), execPgx)
			case "SQLite":
				s.backend = onSQLite(t)
				serve(t, s, outbox.BeginSQL(s.db, nil), execSQL)
			}
			run(t, s.db, "create table cases (id text)")
			test(t, s)
		})
	}
}

func newPool(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	must(t, err)
	t.Cleanup(pool.Close)
	return pool
}

func execSQL(ctx context.Context, tx *sql.Tx, query string) error {
	_, err := tx.ExecContext(ctx, query)
	return err
}

func execPgx(ctx context.Context, tx pgx.Tx, query string) error {
	_, err := tx.Exec(ctx, query)
	return err
}

// asTx is what a handler writes as tx, or as outbox.Pgx(tx).
func asTx(tx any) outbox.Tx {
	if tx, ok := tx.(pgx.Tx); ok {
		return outbox.Pgx(tx)
	}
	return tx.(*sql.Tx)
}

func serve[T any](t *testing.T, s *service, begin outbox.Begin[T], exec func(context.Context, T, string) error) {
	t.Helper()
	h, err := idempotency.NewHandler(idempotency.Config[T]{
		Keeper:    newKeeper(t, s.backend, idempotency.Options{}),
		Begin:     begin,
		Operation: func(r *http.Request) (string, error) { return r.Method + " " + r.URL.Path, nil },
		Handle: func(ctx context.Context, tx T, _ *http.Request, body []byte) (idempotency.Response, error) {
			if err := exec(ctx, tx, "insert into cases values ('"+string(body)+"')"); err != nil {
				return idempotency.Response{}, err
			}
			if _, err := s.box.Enqueue(ctx, asTx(tx), event("")); err != nil {
				return idempotency.Response{}, err
			}
			if s.fail != nil {
				if r, err := s.fail(); err != nil || r.Status != 0 {
					return r, err
				}
			}
			return idempotency.Response{Status: 201, Body: []byte("made " + string(body)), Header: http.Header{
				"Location": {"/cases/" + string(body)}, "X-Once": {"1"}}}, nil
		},
		MaxBodyBytes: 100,
		Log:          slog.New(slog.DiscardHandler),
		Count: func(status int, reason idempotency.Reason) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.counts = append(s.counts, fmt.Sprint(status, " ", reason))
		},
	})
	must(t, err)
	s.handler = h
}

func (s *service) send(key, body string) *httptest.ResponseRecorder {
	req := httptest.NewRequestWithContext(context.Background(), "POST", "/cases?x=1", strings.NewReader(body))
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, req)
	return w
}

// wantMade compares the changes, and counts the events.
func (s *service) wantMade(t testing.TB, want ...string) {
	t.Helper()
	if got := list(t, s.db, "select id from cases order by id"); !slices.Equal(got, want) {
		t.Errorf("the changes are %q, want %q", got, want)
	}
	if got := s.ids(t); len(got) != len(want) {
		t.Errorf("there are %d events, want %d", len(got), len(want))
	}
}

// TestCommandOnce sends one command from many sides at once, and later: one change, one event, one answer.
func TestCommandOnce(t *testing.T) {
	services(t, func(t *testing.T, s *service) {
		const clients = 8
		var wg sync.WaitGroup
		answers := make([]string, clients)
		for client := range clients {
			wg.Go(func() {
				for range 1000 {
					w := s.send("key-1", "1")
					if w.Code == 409 || w.Code == 503 { // SQLite has one writer, and says so
						if w.Header().Get("Retry-After") != "1" {
							t.Errorf("%d with Retry-After %q", w.Code, w.Header().Get("Retry-After"))
						}
						time.Sleep(5 * time.Millisecond)
						continue
					}
					answers[client] = fmt.Sprint(w.Code, " ", w.Body, " ", w.Header().Get("Location"))
					return
				}
			})
		}
		wg.Wait()
		for client, got := range answers {
			if want := "201 made 1 /cases/1"; got != want {
				t.Errorf("client %d got %q, want %q", client, got, want)
			}
		}
		s.wantMade(t, "1")
		later := s.send("key-1", "1")
		if later.Code != 201 || later.Body.String() != "made 1" || later.Header().Get("Idempotency-Replayed") != "true" ||
			later.Header().Get("X-Once") != "" {
			t.Errorf("later: got %d %q %v", later.Code, later.Body, later.Header())
		}
		if w := s.send("key-2", "1"); w.Code != 201 || w.Header().Get("Idempotency-Replayed") != "" {
			t.Errorf("another key: got %d %v", w.Code, w.Header())
		}
		s.wantMade(t, "1", "1")
		handled := 0
		for _, count := range s.counts {
			if count == "201 handled" {
				handled++
			}
		}
		if handled != 2 {
			t.Errorf("counted %q, want two that were handled", s.counts)
		}
	})
}

func TestCommandAnswers(t *testing.T) {
	services(t, func(t *testing.T, s *service) {
		want := func(what string, w *httptest.ResponseRecorder, status int, reason idempotency.Reason) {
			t.Helper()
			if got := s.counts[len(s.counts)-1]; w.Code != status || got != fmt.Sprint(status, " ", reason) {
				t.Errorf("%s: got %d %q, counted %q; want %d %s", what, w.Code, w.Body, got, status, reason)
			}
		}
		want("no key", s.send("", "1"), 400, idempotency.BadKey)
		want("malformed key", s.send("a b", "1"), 400, idempotency.BadKey)
		want("too large", s.send("k", strings.Repeat("1", 101)), 413, idempotency.BadBody)
		two := httptest.NewRequestWithContext(context.Background(), "POST", "/cases", strings.NewReader("1"))
		two.Header["Idempotency-Key"] = []string{"a", "a"}
		w := httptest.NewRecorder()
		s.handler.ServeHTTP(w, two)
		want("two keys", w, 400, idempotency.BadKey)
		broken := httptest.NewRequestWithContext(context.Background(), "POST", "/cases", io.MultiReader(strings.NewReader("1"), brokenReader{}))
		broken.Header.Set("Idempotency-Key", "k")
		w = httptest.NewRecorder()
		s.handler.ServeHTTP(w, broken)
		want("broken off", w, 400, idempotency.BadBody)

		s.fail = func() (idempotency.Response, error) { return idempotency.Response{}, errHandler }
		want("the handler fails", s.send("k", "1"), 500, idempotency.HandlerFailed)
		s.fail = func() (idempotency.Response, error) {
			return idempotency.Response{Status: 502, Body: []byte("busy")}, nil
		}
		if w := s.send("k", "1"); w.Body.String() != "busy" {
			t.Errorf("502 with %q, want the handler's body", w.Body)
		} else {
			want("the handler says 502", w, 502, idempotency.NotStored)
		}
		s.fail = func() (idempotency.Response, error) {
			return idempotency.Response{Status: 200, Body: make([]byte, 2<<20)}, nil
		}
		want("an answer that is too large", s.send("k", "1"), 500, idempotency.HandlerFailed)
		s.fail = func() (idempotency.Response, error) { panic(http.ErrAbortHandler) }
		func() {
			defer func() {
				if err, _ := recover().(error); !errors.Is(err, http.ErrAbortHandler) {
					t.Error("the panic did not go on")
				}
			}()
			s.send("k", "1")
		}()
		s.wantMade(t) // all of it was rolled back

		s.fail = func() (idempotency.Response, error) {
			return idempotency.Response{Status: 404, Body: []byte("no")}, nil
		}
		want("a refusal is an answer", s.send("k", "1"), 404, idempotency.Handled)
		s.fail = nil
		want("and stays one", s.send("k", "1"), 404, idempotency.Replayed)
		want("another body", s.send("k", "2"), 422, idempotency.DifferentRequest)
	})
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func TestIdempotencyTellsAllProblems(t *testing.T) {
	_, err := idempotency.New(outbox.Postgres, idempotency.Options{Schema: "pg_x", Wait: time.Hour, Keep: 1, MaxBodyBytes: -1})
	for _, want := range []string{"pg_x", "Wait", "Keep", "MaxBodyBytes"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("options: got %v, want all problems, %s among them", err, want)
		}
	}
	_, err = idempotency.NewHandler(idempotency.Config[*sql.Tx]{MaxBodyBytes: -1, RetryAfter: 1})
	for _, want := range []string{"Keeper", "Begin", "Operation", "Handle", "MaxBodyBytes", "RetryAfter"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("configuration: got %v, want all problems, %s among them", err, want)
		}
	}
}
