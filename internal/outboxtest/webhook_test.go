package outboxtest

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/internal/pgtest"
	"github.com/pillarbox-dev/pillarbox/outbox"
	"github.com/pillarbox-dev/pillarbox/outbox/inbox"
	"github.com/pillarbox-dev/pillarbox/outbox/webhook"
)

// receiver is a consumer's endpoint on a database.
type receiver struct {
	backend
	handler http.Handler
	guarded bool                           // by version: the id is aggregate/version
	during  func(d webhook.Delivery) error // in the transaction, after the change
}

// receivers are one on each database, with both drivers.
func receivers(t *testing.T, test func(t *testing.T, r *receiver)) {
	t.Helper()
	for _, driver := range []string{"database/sql", "pgx", "SQLite"} {
		t.Run(driver, func(t *testing.T) {
			r := &receiver{}
			switch driver {
			case "database/sql":
				r.backend = onPostgres(t, pgtest.Database(t))
				receive(t, r, outbox.BeginSQL(r.db, nil), execSQL)
			case "pgx":
				url := pgtest.Database(t)
				r.backend = onPostgres(t, url)
				receive(t, r, outbox.BeginPgx(newPool(t, url)), execPgx)
			case "SQLite":
				r.backend = onSQLite(t)
				receive(t, r, outbox.BeginSQL(r.db, nil), execSQL)
			}
			run(t, r.db, "create table handled (n "+serial(r.backend)+", id text)")
			test(t, r)
		})
	}
}

func receive[T any](t *testing.T, r *receiver, begin outbox.Begin[T], exec func(context.Context, T, string) error) {
	t.Helper()
	in := newInbox(t, r.backend, 100*time.Millisecond)
	h, err := webhook.NewHandler(webhook.Config[T]{
		Consumer: "c",
		Inbox:    in,
		Begin:    begin,
		Secrets:  func(context.Context) ([][]byte, error) { return [][]byte{[]byte("s3cret")}, nil },
		Handle: func(ctx context.Context, tx T, d webhook.Delivery) error {
			if r.guarded {
				aggregate, text, _ := strings.Cut(d.ID, "/")
				version, err := strconv.ParseInt(text, 10, 64)
				if err != nil {
					return webhook.Malformed(err)
				}
				if verdict, err := in.Guard(ctx, asTx(tx), "c", "a", aggregate, version); err != nil || verdict != inbox.Apply {
					return errors.Join(err, fmt.Errorf("%v", verdict))
				}
			}
			if err := exec(ctx, tx, "insert into handled (id) values ('"+d.ID+"')"); err != nil {
				return err
			}
			if r.during != nil {
				return r.during(d)
			}
			return nil
		},
		Log: slog.New(slog.DiscardHandler),
	})
	must(t, err)
	r.handler = h
}

func (r *receiver) send(id, body string) *httptest.ResponseRecorder {
	req := httptest.NewRequestWithContext(context.Background(), "POST", "/events", strings.NewReader(body))
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", id)
	req.Header.Set("Pillarbox-Signature", webhook.SignHex([]byte("s3cret"), []byte(body)))
	w := httptest.NewRecorder()
	r.handler.ServeHTTP(w, req)
	return w
}

func (r *receiver) want(t testing.TB, id, body string, status int, answer string) {
	t.Helper()
	w := r.send(id, body)
	if w.Code != status || w.Body.String() != answer || (w.Header().Get("Retry-After") != "") != (status == 409 || status == 503) {
		t.Errorf("%s: got %d %q, Retry-After %q; want %d %q", id, w.Code, w.Body, w.Header().Get("Retry-After"), status, answer)
	}
}

func (r *receiver) wantHandled(t testing.TB, want ...string) {
	t.Helper()
	if got := list(t, r.db, "select id from handled order by n"); !slices.Equal(got, want) {
		t.Errorf("handled %q, want %q", got, want)
	}
	got := list(t, r.db, "select event_id from "+r.table("outbox_inbox")+" order by event_id")
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the inbox holds %q, want %q", got, want)
	}
}

const (
	isNew = `{"duplicate":false}`
	isOld = `{"duplicate":true}`
)

// TestWebhookTransaction: whatever the handler does, the change and the record are there together or not at all.
func TestWebhookTransaction(t *testing.T) {
	receivers(t, func(t *testing.T, r *receiver) {
		r.want(t, "a", "{}", 200, isNew)
		r.want(t, "a", "{}", 200, isOld)
		r.want(t, "a", "{ }", 422, `{"error":"this Idempotency-Key was seen with another body"}`)
		wantCounts(t, r.backend, "c a 1")
		for _, step := range []struct {
			err    error
			status int
			answer string
		}{
			{errHandler, 500, ""},
			{webhook.TryAgain(0, errHandler), 503, ""},
			{webhook.Malformed(errors.New("no case")), 400, `{"error":"no case"}`},
			{webhook.Refuse(402, errors.New("no balance")), 402, `{"error":"no balance"}`},
		} {
			r.during = func(webhook.Delivery) error { return step.err }
			r.want(t, "b", "{}", step.status, step.answer)
		}
		r.during = func(webhook.Delivery) error { panic(http.ErrAbortHandler) }
		func() {
			defer func() {
				if err, _ := recover().(error); !errors.Is(err, http.ErrAbortHandler) {
					t.Error("the panic did not go on")
				}
			}()
			r.send("b", "{}")
		}()
		r.wantHandled(t, "a")
		r.during = nil
		r.want(t, "b", "{}", 200, isNew)
		r.wantHandled(t, "a", "b")
	})
}

// TestWebhookTwin: while one delivery of an event is being handled, another gets 409, and 200 duplicate once it is done.
func TestWebhookTwin(t *testing.T) {
	receivers(t, func(t *testing.T, r *receiver) {
		if d, _ := r.where(); d == outbox.SQLite {
			db := open(t, "sqlite", "file:"+fileOf(t, r.db)+"?_pragma=busy_timeout(100)")
			receive(t, r, outbox.BeginSQL(db, nil), execSQL)
		}
		entered, leave := make(chan struct{}), make(chan struct{})
		r.during = func(webhook.Delivery) error { close(entered); <-leave; return nil }
		done := make(chan *httptest.ResponseRecorder)
		go func() { done <- r.send("a", "{}") }()
		<-entered
		r.want(t, "a", "{}", 409, `{"error":"it is being handled: try again"}`)
		close(leave)
		if w := <-done; w.Code != 200 || w.Body.String() != isNew {
			t.Errorf("the first: got %d %q", w.Code, w.Body)
		}
		r.want(t, "a", "{}", 200, isOld)
		r.wantHandled(t, "a")
	})
}

var deliveries = flag.Int("deliveries", 600, "how many deliveries TestDeliveriesCountOnce sends at least")

// TestDeliveriesCountOnce sends events out of order and one in ten twice, from many sides, to a handler that fails now and then;
// what was not taken is sent again later. Each event is handled once, and the versions of an aggregate never go back.
func TestDeliveriesCountOnce(t *testing.T) {
	receivers(t, func(t *testing.T, r *receiver) {
		const aggregates, senders = 20, 8
		versions := *deliveries*10/11/aggregates + 1
		var mu sync.Mutex
		chance := rand.New(rand.NewPCG(1, 2))
		r.guarded = true
		r.during = func(webhook.Delivery) error {
			mu.Lock()
			defer mu.Unlock()
			switch chance.IntN(50) {
			case 0:
				return errHandler
			case 1:
				return webhook.TryAgain(0, errHandler)
			}
			return nil
		}
		open, again := hostileOrder(aggregates, versions), []string{} // again: what was not taken
		sent := 0
		next := func() (id string, more bool) {
			mu.Lock()
			defer mu.Unlock()
			from := &open
			if len(again) > 0 && (len(open) == 0 || chance.IntN(2) == 0) {
				from = &again
			}
			if len(*from) == 0 {
				return "", false
			}
			id, *from = (*from)[0], (*from)[1:]
			sent++
			return id, true
		}
		var wg sync.WaitGroup
		for range senders {
			wg.Go(func() {
				for id, more := next(); more && !t.Failed(); id, more = next() {
					w := r.send(id, `{"id":"`+id+`"}`)
					if w.Code == 200 {
						continue
					}
					if !slices.Contains([]int{409, 500, 503}, w.Code) {
						t.Errorf("%s: got %d %q", id, w.Code, w.Body)
					}
					mu.Lock()
					again = append(again, id)
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		t.Logf("%d deliveries of %d events", sent, aggregates*versions)
		last := map[string]int{}
		handled := list(t, r.db, "select id from handled order by n")
		for _, id := range handled {
			aggregate, version, _ := strings.Cut(id, "/")
			last[aggregate]++
			if version != fmt.Sprint(last[aggregate]) {
				t.Fatalf("%s was handled as the aggregate's version %d", id, last[aggregate])
			}
		}
		if len(handled) != aggregates*versions {
			t.Errorf("%d were handled, want %d", len(handled), aggregates*versions)
		}
	})
}

// hostileOrder is all events, each near its place, and one in ten again somewhere behind it.
func hostileOrder(aggregates, versions int) []string {
	chance := rand.New(rand.NewPCG(3, 4))
	type place struct {
		at int
		id string
	}
	var all []place
	for i := range versions * aggregates {
		p := place{i + chance.IntN(2*aggregates), fmt.Sprintf("%d/%d", i%aggregates, i/aggregates+1)}
		all = append(all, p)
		if chance.IntN(10) == 0 {
			all = append(all, place{p.at + chance.IntN(10*aggregates), p.id})
		}
	}
	slices.SortStableFunc(all, func(a, b place) int { return cmp.Compare(a.at, b.at) })
	ids := make([]string, len(all))
	for i, p := range all {
		ids[i] = p.id
	}
	return ids
}

// TestWebhookWithoutDatabase: the sender is to try again later.
func TestWebhookWithoutDatabase(t *testing.T) {
	r := &receiver{backend: onSQLite(t)}
	gone, err := sql.Open("sqlite", "file:"+t.TempDir()+"/no/such/folder/db")
	must(t, err)
	defer gone.Close()
	receive(t, r, outbox.BeginSQL(gone, nil), execSQL)
	r.want(t, "a", "{}", 503, "")
}
