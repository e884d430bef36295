package outboxtest

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pillarbox-dev/pillarbox/internal/pgtest"
	"github.com/pillarbox-dev/pillarbox/outbox"
)

// backend is a database, a driver, and an outbox for them.
type backend struct {
	db    *sql.DB
	box   *outbox.Outbox
	event string // the log's qualified name
	begin func() transaction
}

// transaction is what the drivers' transactions have in common here.
type transaction struct {
	outbox.Tx
	exec func(query string) error
}

// everywhere runs a test with each database and driver.
func everywhere(t *testing.T, test func(t *testing.T, b backend)) {
	for _, mode := range []string{"cache_statement", "exec", "simple_protocol"} { // the last two: behind a connection pooler
		t.Run("database/sql "+mode, func(t *testing.T) {
			url := pgtest.Database(t) + "&default_query_exec_mode=" + mode
			b := onPostgres(t, url)
			b.begin = func() transaction { return beginSQL(t, b.db) }
			test(t, b)
		})
		t.Run("pgx "+mode, func(t *testing.T) {
			url := pgtest.Database(t) + "&default_query_exec_mode=" + mode
			b := onPostgres(t, url)
			pool, err := pgxpool.New(t.Context(), url)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(pool.Close)
			b.begin = func() transaction { return beginPgx(t, pool) }
			test(t, b)
		})
	}
	t.Run("SQLite", func(t *testing.T) {
		b := onSQLite(t)
		b.begin = func() transaction { return beginSQL(t, b.db) }
		test(t, b)
	})
}

func onPostgres(t testing.TB, url string) backend {
	t.Helper()
	b := backend{db: openPostgres(t, url), event: qualified(outbox.Postgres, oddSchema, "outbox_event")}
	migrate(t, b.db, outbox.Postgres, oddSchema)
	b.box = newBox(t, outbox.Postgres, outbox.Options{Schema: oddSchema})
	return b
}

func onSQLite(t testing.TB) backend {
	t.Helper()
	b := backend{db: openSQLite(t, filepath.Join(t.TempDir(), "db")), event: "outbox_event"}
	migrate(t, b.db, outbox.SQLite, "")
	b.box = newBox(t, outbox.SQLite, outbox.Options{})
	return b
}

func newBox(t testing.TB, d outbox.Dialect, opts outbox.Options) *outbox.Outbox {
	t.Helper()
	box, err := outbox.New(d, opts)
	if err != nil {
		t.Fatal(err)
	}
	return box
}

func beginSQL(t *testing.T, db *sql.DB) transaction {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tx.Rollback() })
	return transaction{tx, func(query string) error { _, err := tx.ExecContext(t.Context(), query); return err }}
}

func beginPgx(t *testing.T, pool *pgxpool.Pool) transaction {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return transaction{outbox.Pgx(tx), func(query string) error { _, err := tx.Exec(t.Context(), query); return err }}
}

func enqueue(t testing.TB, b backend, tx transaction, events ...outbox.Event) []outbox.Result {
	t.Helper()
	results, err := b.box.Enqueue(t.Context(), tx.Tx, events...)
	if err != nil {
		t.Fatal(err)
	}
	return results
}

func event(id string) outbox.Event {
	return outbox.Event{ID: id, Topic: "orders", Type: "Placed", Payload: []byte(`{}`)}
}

func (b backend) ids(t testing.TB) []string {
	t.Helper()
	return list(t, b.db, "select event_id from "+b.event+" order by seq")
}

// TestRollbackLeavesNothing: of a transaction, and of a savepoint.
func TestRollbackLeavesNothing(t *testing.T) {
	everywhere(t, func(t *testing.T, b backend) {
		tx := b.begin()
		enqueue(t, b, tx, event("gone"), event("gone-too"))
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		if got := b.ids(t); len(got) != 0 {
			t.Errorf("after the rollback the log holds %v", got)
		}

		tx = b.begin()
		enqueue(t, b, tx, event("before"))
		must(t, tx.exec("savepoint inner_part"))
		enqueue(t, b, tx, event("gone"))
		must(t, tx.exec("rollback to savepoint inner_part"))
		results := enqueue(t, b, tx, event("after"), event("before"))
		if want := []outbox.Result{{ID: "after"}, {ID: "before", Duplicate: true}}; !slices.Equal(results, want) {
			t.Errorf("after the savepoint: got %v, want %v", results, want)
		}
		must(t, tx.Commit())
		if got, want := b.ids(t), []string{"before", "after"}; !slices.Equal(got, want) {
			t.Errorf("the log holds %v, want %v", got, want)
		}
	})
}

// TestDuplicates: of the log and of the same call, by id and by key; the transaction goes on and the first event stays.
func TestDuplicates(t *testing.T) {
	everywhere(t, func(t *testing.T, b backend) {
		keyed := func(id, key string) outbox.Event {
			e := event(id)
			e.DedupKey = key
			return e
		}
		tx := b.begin()
		first := keyed("a", "Placed/1")
		first.Payload = []byte(`"first"`)
		enqueue(t, b, tx, first)
		must(t, tx.Commit())

		tx = b.begin()
		must(t, tx.exec("create table business (x integer)"))
		got := enqueue(t, b, tx, keyed("b", "Placed/2"), event("a"), keyed("c", "Placed/1"), keyed("d", "Placed/2"),
			event("b"), event("e"), event("f"))
		want := []outbox.Result{{ID: "b"}, {ID: "a", Duplicate: true}, {ID: "c", Duplicate: true}, {ID: "d", Duplicate: true},
			{ID: "b", Duplicate: true}, {ID: "e"}, {ID: "f"}}
		if !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		must(t, tx.exec("insert into business values (1)"))
		must(t, tx.Commit())

		if got, want := b.ids(t), []string{"a", "b", "e", "f"}; !slices.Equal(got, want) {
			t.Errorf("the log holds %v, want %v", got, want)
		}
		if got := list(t, b.db, "select payload from "+b.event+" where event_id = 'a'"); got[0] != `"first"` {
			t.Errorf("the first event's payload became %s", got)
		}
		if got := list(t, b.db, "select x from business"); len(got) != 1 {
			t.Errorf("the business rows are %v, want one", got)
		}
	})
}

// TestInvalidEventDoesNotAbort: the service may correct it and go on in the same transaction.
func TestInvalidEventDoesNotAbort(t *testing.T) {
	everywhere(t, func(t *testing.T, b backend) {
		tx := b.begin()
		bad := event("x")
		bad.Payload = []byte("{")
		var invalid *outbox.InvalidError
		if _, err := b.box.Enqueue(t.Context(), tx.Tx, event("ok"), bad); !errors.As(err, &invalid) {
			t.Fatalf("got %v, want an InvalidError", err)
		}
		enqueue(t, b, tx, event("ok"))
		must(t, tx.Commit())
		if got := b.ids(t); !slices.Equal(got, []string{"ok"}) {
			t.Errorf("the log holds %v, want ok", got)
		}
	})
}

// TestBytesAreExact: what the producer gave is what is stored.
func TestBytesAreExact(t *testing.T) {
	payloads := []string{
		" { \"b\" :1.0,\n\t\"a\": [ ] , \"b\":2 }\r\n", `1e400`, `-0`, `0.10000000000000000000000000000000000001`,
		`12345678901234567890123`,
		`"\u0000 \ud800 \/ ü 😀 <&> '' \\ $1 ? :x"`, `null`, `""`, `{"a":` + strings.Repeat(`[`, 511) + strings.Repeat(`]`, 511) + `}`,
		`"` + strings.Repeat("x", 1<<20-2) + `"`,
	}
	binaries := [][]byte{{}, {0}, []byte("\\x41"), bytes.Repeat([]byte{0, 1, 2, 0xff, '\''}, 50_000)}
	everywhere(t, func(t *testing.T, b backend) {
		var events []outbox.Event
		for i, p := range payloads {
			e := event(fmt.Sprintf("json%02d", i))
			e.Payload = json.RawMessage(p)
			events = append(events, e)
		}
		for i, p := range binaries {
			e := event(fmt.Sprintf("bytes%02d", i))
			e.Payload, e.PayloadBytes = nil, p
			events = append(events, e)
		}
		tombstone := event("tombstone")
		tombstone.Payload = nil
		tx := b.begin()
		enqueue(t, b, tx, append(events, tombstone)...)
		must(t, tx.Commit())

		asText, asHex := "payload::text", "encode(payload_bytes, 'hex')"
		if b.event == "outbox_event" {
			asText, asHex = "payload", "lower(hex(payload_bytes))"
		}
		got := list(t, b.db, "select "+asText+" from "+b.event+" where event_id like 'json%' order by event_id")
		if !slices.Equal(got, payloads) {
			t.Errorf("got %.500q\nwant %.500q", got, payloads)
		}
		var wantHex []string
		for _, p := range binaries {
			wantHex = append(wantHex, hex.EncodeToString(p))
		}
		got = list(t, b.db, "select "+asHex+" from "+b.event+" where event_id like 'bytes%' order by event_id")
		if !slices.Equal(got, wantHex) { // a null does not scan into text
			t.Errorf("got bytes %.200q\nwant %.200q", got, wantHex)
		}
		if got := list(t, b.db,
			"select event_id from "+b.event+" where payload is null and payload_bytes is null"); !slices.Equal(got,
			[]string{"tombstone"}) {
			t.Errorf("tombstones are %v", got)
		}
	})
}

// TestEveryColumn: each field lands in its column, and what is not set gets the column's default.
func TestEveryColumn(t *testing.T) {
	everywhere(t, func(t *testing.T, b backend) {
		at := time.Date(2031, 2, 3, 4, 5, 6, 789_012_345, time.FixedZone("east", 3600))
		full := outbox.Event{ID: "full", Topic: "t'1", Key: "k\\", AggregateType: "at", AggregateID: "ai", AggregateVersion: 1 << 40,
			Type: "ty", Version: 3, SchemaRef: "sr", Payload: []byte(`{}`), Headers: map[string]string{"b": `"\`, "a": "ü"},
			DedupKey: "dk", AvailableAt: at}
		tx := b.begin()
		results := enqueue(t, b, tx, full, outbox.Event{Topic: "t", Type: "T"})
		must(t, tx.Commit())

		available := "to_char(available_at at time zone 'utc', 'YYYY-MM-DD HH24:MI:SS.US')"
		if b.event == "outbox_event" {
			available = "strftime('%Y-%m-%d %H:%M:%S', available_at / 1000000, 'unixepoch') || printf('.%06d', available_at % 1000000)"
		}
		rows := list(t, b.db,
			`select event_id || '|' || topic_name || '|' || partition_key || '|' || aggregate_type || '|' || aggregate_id
			|| '|' || aggregate_version || '|' || event_type || '|' || event_version || '|' || schema_ref || '|' || headers
			|| '|' || coalesce(dedup_key, 'null') || '|' || coalesce(`+available+`, 'null')
			from `+b.event+` order by seq`)
		want := []string{
			`full|t'1|k\|at|ai|1099511627776|ty|3|sr|{"a":"ü","b":"\"\\"}|dk|2031-02-03 03:05:06.789012`,
			results[1].ID + `|t||||0|T|1||{}|null|null`,
		}
		if !slices.Equal(rows, want) {
			t.Errorf("got  %s\nwant %s", strings.Join(rows, "\n     "), strings.Join(want, "\n     "))
		}
	})
}

// TestManyEvents: 5,000 in one call, in order, all or nothing.
func TestManyEvents(t *testing.T) {
	everywhere(t, func(t *testing.T, b backend) {
		events := slices.Repeat([]outbox.Event{event("")}, 5000)
		tx := b.begin()
		results := enqueue(t, b, tx, events...)
		must(t, tx.Commit())
		want := make([]string, len(results))
		for i, r := range results {
			want[i] = r.ID
			if r.Duplicate {
				t.Fatalf("event %d is called a duplicate", i)
			}
		}
		if got := b.ids(t); !slices.Equal(got, want) || !slices.IsSorted(want) {
			t.Errorf("the log holds %d events, want the %d in their order", len(got), len(want))
		}
	})
}

// TestTraceHeadersAreStored: Options.Trace sees the caller's context.
func TestTraceHeadersAreStored(t *testing.T) {
	type key struct{}
	b := onSQLite(t)
	box := newBox(t, outbox.SQLite, outbox.Options{Trace: func(ctx context.Context, set func(name, value string)) {
		set("traceparent", ctx.Value(key{}).(string))
	}})
	tx := beginSQL(t, b.db)
	if _, err := box.Enqueue(context.WithValue(t.Context(), key{}, "00-abc"), tx.Tx, event("a")); err != nil {
		t.Fatal(err)
	}
	must(t, tx.Commit())
	if got := list(t, b.db, "select headers from outbox_event"); got[0] != `{"traceparent":"00-abc"}` {
		t.Errorf("headers are %s", got)
	}
}

// TestEnqueueErrorsHint: the database's own errors, with what to do about them.
func TestEnqueueErrorsHint(t *testing.T) {
	url := pgtest.Database(t)
	b := onPostgres(t, url)
	b.begin = func() transaction { return beginSQL(t, b.db) }
	elsewhere := newBox(t, outbox.Postgres, outbox.Options{Schema: "elsewhere"})
	for _, c := range []struct {
		name string
		box  *outbox.Outbox
		with string
		want string
	}{
		{"no tables", elsewhere, "select 1", "pillarbox migrate"},
		{"failed transaction", b.box, "select 1/0", "roll back"},
	} {
		tx := b.begin()
		_ = tx.exec(c.with) // the second one is to fail
		if _, err := c.box.Enqueue(t.Context(), tx.Tx, event("a")); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want an error with %q", c.name, err, c.want)
		}
		must(t, tx.Rollback())
	}

	lite := openSQLite(t, filepath.Join(t.TempDir(), "db"))
	tx := beginSQL(t, lite)
	if _, err := newBox(t, outbox.SQLite, outbox.Options{}).Enqueue(t.Context(), tx.Tx, event("a")); err == nil ||
		!strings.Contains(err.Error(), "pillarbox migrate") {
		t.Errorf("SQLite without tables: got %v", err)
	}
}

// TestSequenceSetBack: after a partial restore a number may be handed out again. The event must not be taken for a duplicate.
func TestSequenceSetBack(t *testing.T) {
	b := onPostgres(t, pgtest.Database(t))
	keyed := event("keyed")
	keyed.DedupKey = "key"
	later := event("later")
	later.AvailableAt = time.Now()
	tx := beginSQL(t, b.db)
	enqueue(t, b, tx, event("first"), event("second"), event("third"), event("fourth"))
	must(t, tx.Commit())
	for _, events := range [][]outbox.Event{{event("plain")}, {event("plain"), event("plain2")}, {keyed}, {later},
		{event("first"), keyed}} {
		run(t, b.db, "select setval($1, 1)", qualified(outbox.Postgres, oddSchema, "outbox_event_seq"))
		tx := beginSQL(t, b.db)
		_, err := b.box.Enqueue(t.Context(), tx.Tx, events...)
		if err == nil || !strings.Contains(err.Error(), "setval") {
			t.Errorf("%v: got %v, want an error with a hint", events, err)
		}
		must(t, tx.Rollback())
	}
}

// TestPgxSavepoint: a nested transaction of pgx is a savepoint, and a transaction for Enqueue.
func TestPgxSavepoint(t *testing.T) {
	url := pgtest.Database(t)
	b := onPostgres(t, url)
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	err = pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
		if _, err := b.box.Enqueue(t.Context(), outbox.Pgx(tx), event("outer")); err != nil {
			return err
		}
		changed := errors.New("changed its mind")
		if err := pgx.BeginFunc(t.Context(), tx, func(tx pgx.Tx) error {
			_, err := b.box.Enqueue(t.Context(), outbox.Pgx(tx), event("inner"))
			return errors.Join(err, changed)
		}); err.Error() != changed.Error() {
			return err
		}
		return nil
	})
	if got := b.ids(t); err != nil || !slices.Equal(got, []string{"outer"}) {
		t.Errorf("the log holds %v (%v), want outer", got, err)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
