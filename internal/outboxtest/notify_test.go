package outboxtest

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pillarbox-dev/pillarbox/internal/pgtest"
	"github.com/pillarbox-dev/pillarbox/outbox"
	"github.com/pillarbox-dev/pillarbox/outbox/schema"
)

// TestNotifyOnlyWhileARelaySleeps: NOTIFY takes a cluster-wide lock at commit, so it must not be sent for nothing.
func TestNotifyOnlyWhileARelaySleeps(t *testing.T) {
	url := pgtest.Database(t)
	b := onPostgres(t, url)
	migrate(t, b.db, schema.Postgres, "other")
	cursor := qualified(outbox.Postgres, oddSchema, "outbox_cursor")
	quiet := newBox(t, outbox.Postgres, outbox.Options{Schema: oddSchema, NoNotify: true})
	ears := listen(t, url)
	one := func(t *testing.T, box *outbox.Outbox) {
		t.Helper()
		inTx(t, b.db, func(tx *sql.Tx) error { _, err := box.Enqueue(t.Context(), tx, event("")); return err })
	}

	for _, c := range []struct {
		name   string
		asleep string // sets the cursors
		do     func(t *testing.T)
		want   int
	}{
		{"no cursor", "", func(t *testing.T) { one(t, b.box) }, 0},
		{"none asleep", "insert into " + cursor + " (destination) values ('a'), ('b'), ('c')", func(t *testing.T) { one(t, b.box) }, 0},
		{"asleep in another schema", "insert into other.outbox_cursor (destination, asleep) values ('a', true)",
			func(t *testing.T) { one(t, b.box) }, 0},
		{"one asleep", "update " + cursor + " set asleep = destination = 'b'", func(t *testing.T) { one(t, b.box) }, 1},
		{"all asleep, many statements", "update " + cursor + " set asleep = true", func(t *testing.T) {
			inTx(t, b.db, func(tx *sql.Tx) error {
				for range 5 {
					if _, err := b.box.Enqueue(t.Context(), tx, event(""), event(""), event("")); err != nil {
						return err
					}
				}
				return nil
			})
		}, 1}, // PostgreSQL folds what is the same in one transaction
		{"nothing written", "", func(t *testing.T) {
			inTx(t, b.db, func(tx *sql.Tx) error {
				_, err := tx.ExecContext(t.Context(), "insert into "+b.event+" (event_id, topic_name, event_type) values ('there', 't', 'T')")
				return err
			})
			inTx(t, b.db, func(tx *sql.Tx) error {
				results, err := b.box.Enqueue(t.Context(), tx, event("there"))
				if err == nil && !results[0].Duplicate {
					err = errors.New("the event is not a duplicate")
				}
				return err
			})
		}, 0},
		{"rolled back", "", func(t *testing.T) {
			tx := beginSQL(t, b.db)
			enqueue(t, b, tx, event(""))
			must(t, tx.Rollback())
		}, 0},
		{"NoNotify", "", func(t *testing.T) { one(t, quiet) }, 0},
		{"awake again", "update " + cursor + " set asleep = false", func(t *testing.T) { one(t, b.box) }, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.asleep != "" {
				run(t, b.db, c.asleep)
			}
			c.do(t)
			if got := ears.heard(t, b.db); len(got) != c.want || c.want == 1 && got[0] != oddSchema {
				t.Errorf("heard %q, want %d with the schema's name", got, c.want)
			}
		})
	}
}

// TestWakeTrigger: what PrintWakeTrigger gives does for plain SQL what Enqueue does by itself, for a role that may only insert.
func TestWakeTrigger(t *testing.T) {
	url := pgtest.Database(t)
	b := onPostgres(t, url)
	text, err := schema.PrintWakeTrigger(oddSchema)
	must(t, err)
	for range 2 {
		psql(t, url, text)
	}
	app := newRole(t, b.db, "app")
	run(t, b.db, "grant usage on schema "+schema.Quote(oddSchema)+" to "+schema.Quote(app))
	run(t, b.db, "grant insert on "+b.event+" to "+schema.Quote(app))
	run(t, b.db, "grant usage on "+qualified(outbox.Postgres, oddSchema, "outbox_event_seq")+" to "+schema.Quote(app))
	asApp := openPostgres(t, as(url, app))
	insert := "insert into " + b.event + " (topic_name, event_type) select 't', 'T' from generate_series(1, 3)"
	ears := listen(t, url)

	run(t, asApp, insert)
	if got := ears.heard(t, b.db); len(got) != 0 {
		t.Errorf("heard %q while no relay sleeps", got)
	}
	run(t, b.db, "insert into "+qualified(outbox.Postgres, oddSchema, "outbox_cursor")+" (destination, asleep) values ('a', true)")
	run(t, asApp, insert)
	if got := ears.heard(t, b.db); len(got) != 1 || got[0] != oddSchema {
		t.Errorf("heard %q, want the schema's name", got)
	}
}

// TestTwoPhaseCommit: PostgreSQL does not prepare a transaction that has notified, which NoNotify is for.
func TestTwoPhaseCommit(t *testing.T) {
	url := pgtest.Database(t)
	b := onPostgres(t, url)
	run(t, b.db, "insert into "+qualified(outbox.Postgres, oddSchema, "outbox_cursor")+" (destination, asleep) values ('a', true)")
	quiet := newBox(t, outbox.Postgres, outbox.Options{Schema: oddSchema, NoNotify: true})
	prepare := func(box *outbox.Outbox, id string) error {
		tx := beginSQL(t, b.db)
		if _, err := box.Enqueue(t.Context(), tx.Tx, event(id)); err != nil {
			return err
		}
		return tx.exec("prepare transaction '" + id + "'")
	}
	if err := prepare(b.box, "loud"); err == nil || !strings.Contains(err.Error(), "NOTIFY") {
		t.Errorf("with NOTIFY: got %v; if PostgreSQL allows it now, NoNotify is not needed any more", err)
	}
	must(t, prepare(quiet, "quiet"))
	if got := b.ids(t); len(got) != 0 {
		t.Errorf("the log shows %v before the second phase", got)
	}
	run(t, b.db, "commit prepared 'quiet'")
	if got := b.ids(t); len(got) != 1 || got[0] != "quiet" {
		t.Errorf("the log shows %v, want quiet", got)
	}
}

func inTx(t *testing.T, db *sql.DB, do func(*sql.Tx) error) {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	must(t, err)
	defer tx.Rollback()
	must(t, do(tx))
	must(t, tx.Commit())
}

// listener hears what is sent to relays.
type listener struct{ conn *pgx.Conn }

func listen(t *testing.T, url string) listener {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	must(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	_, err = conn.Exec(t.Context(), "listen pillarbox")
	must(t, err)
	return listener{conn}
}

// heard returns what was sent since the last call. It sends an end mark itself: notifications arrive in order of commit, so
// nothing is waited for in vain.
func (l listener) heard(t *testing.T, db *sql.DB) []string {
	t.Helper()
	const mark = "end of test"
	run(t, db, "select pg_notify('pillarbox', $1)", mark)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var all []string
	for {
		n, err := l.conn.WaitForNotification(ctx)
		must(t, err)
		if n.Payload == mark {
			return all
		}
		all = append(all, n.Payload)
	}
}
