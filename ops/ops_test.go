package ops_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/pillarbox-dev/pillarbox/internal/pgtest"
	"github.com/pillarbox-dev/pillarbox/ops"
	"github.com/pillarbox-dev/pillarbox/outbox/schema"
	"github.com/pillarbox-dev/pillarbox/store/sqlite"
)

// box is an outbox with its tables, in one of the databases.
type box struct {
	*testing.T
	db *sql.DB
	*ops.Ops
	dialect schema.Dialect
	address string // of the database: a URL, or a path
	schema  string
}

// onBoth runs a test on both databases; in PostgreSQL in a schema whose name needs quotes.
func onBoth(t *testing.T, test func(b *box)) {
	for _, dialect := range []schema.Dialect{schema.Postgres, schema.SQLite} {
		t.Run(dialect.String(), func(t *testing.T) { test(newBox(t, dialect)) })
	}
}

func newBox(t *testing.T, dialect schema.Dialect) *box {
	t.Helper()
	b := &box{T: t, dialect: dialect}
	name := ""
	var err error
	if dialect == schema.Postgres {
		name, b.address = `Out "box"`, pgtest.Database(t)
		b.db, err = sql.Open("pgx", b.address)
	} else {
		b.address = filepath.Join(t.TempDir(), "box.db")
		b.db, err = sqlite.OpenDB(t.Context(), sqlite.Config{Path: b.address})
	}
	b.schema = name
	b.must(err)
	t.Cleanup(func() { b.db.Close() })
	_, err = schema.Migrate(t.Context(), b.db, dialect, name)
	b.must(err)
	if dialect == schema.Postgres {
		b.exec(fmt.Sprintf(`alter role postgres in database %s set search_path to %s`,
			schema.Quote(b.database()), schema.Quote(name)))
		b.db.SetMaxIdleConns(0) // new connections have the path
	}
	b.Ops, err = ops.New(b.db, dialect, name)
	b.must(err)
	return b
}

func (b *box) database() (name string) {
	b.must(b.db.QueryRowContext(b.Context(), "select current_database()").Scan(&name))
	return name
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

// events adds n events of a topic that are age old.
func (b *box) events(n int, topic string, age time.Duration) {
	b.Helper()
	if b.dialect == schema.Postgres {
		b.exec(`insert into outbox_event (topic_name, event_type, created_at)
			select $1, 'T', clock_timestamp() - make_interval(secs => $2) from generate_series(1, $3)`, topic, age.Seconds(), n)
		return
	}
	b.exec(`with recursive n(i) as (select 1 union all select i + 1 from n where i < ?3)
		insert into outbox_event (topic_name, event_type, created_at)
		select ?1, 'T', cast(unixepoch('subsec') * 1000000 as integer) - ?2 from n`, topic, age.Microseconds(), n)
}

// cursor adds a destination whose position is given.
func (b *box) cursor(destination string, position int64, topics ...string) {
	b.Helper()
	text, err := json.Marshal(append([]string{}, topics...))
	b.must(err)
	if b.dialect == schema.Postgres {
		b.exec(`insert into outbox_cursor (destination, position, topics)
			values ($1, $2, array(select json_array_elements_text($3::text::json)))`, destination, position, string(text))
		return
	}
	b.exec(`insert into outbox_cursor (destination, position, topics) values (?1, ?2, ?3)`, destination, position, string(text))
}

// deliveries adds rows of one status to the destination d, from the number first on.
func (b *box) deliveries(n int, status string, first int) {
	b.Helper()
	if b.dialect == schema.Postgres {
		b.exec(`insert into outbox_delivery (destination, seq, status, published_at)
			select $1, i, $2, case when $2 = 'PUBLISHED' then clock_timestamp() end
			  from generate_series($3::bigint, $3::bigint + $4::bigint - 1) i`, "d", status, first, n)
		return
	}
	b.exec(`with recursive n(i) as (select ?3 union all select i + 1 from n where i < ?3 + ?4 - 1)
		insert into outbox_delivery (destination, seq, status, published_at)
		select ?1, i, ?2, case when ?2 = 'PUBLISHED' then cast(unixepoch('subsec') * 1000000 as integer) end from n`,
		"d", status, first, n)
}

func (b *box) status() ops.Status {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), 10*time.Second) // a bad plan takes minutes in TestStatusEstimates
	defer cancel()
	s, err := b.Status(ctx)
	b.must(err)
	return s
}

func TestStatusOfAnEmptyOutbox(t *testing.T) {
	onBoth(t, func(b *box) {
		s := b.status()
		if len(s.Destinations) != 0 || s.LastSeq != 0 {
			b.Errorf("status = %+v, want nothing", s)
		}
		text, err := json.Marshal(s)
		b.must(err)
		if !strings.Contains(string(text), `"destinations":[]`) {
			b.Errorf("JSON = %s, want an empty list", text)
		}
		b.cursor("idle", 0)
		d := b.status().Destinations[0]
		if d.Pending != (ops.Count{}) || d.OldestPendingAge != 0 || d.RatePerSecond != 0 || d.LeaseOwner != "" || d.Paused {
			b.Errorf("idle destination = %+v, want nothing to do", d)
		}
	})
}

// Everything that is open is counted once: above the cursor, in the ledger, and not what other destinations want.
func TestStatusCounts(t *testing.T) {
	onBoth(t, func(b *box) {
		b.events(10, "orders", time.Hour)    // 1–10, below the cursor
		b.events(5, "orders.b", time.Minute) // 11–15
		b.events(5, "other", time.Minute)    // 16–20, not wanted
		b.cursor("d", 10, "orders*")
		b.cursor("all", 0)
		b.deliveries(4, "PUBLISHED", 1)
		b.deliveries(1, "FAILED", 5)
		b.deliveries(2, "QUARANTINED", 6)
		b.deliveries(1, "PENDING", 8)
		b.deliveries(1, "PUBLISHING", 9)
		b.deliveries(1, "DISCARDED", 10)
		b.deliveries(2, "PUBLISHED", 11) // above the cursor, settled
		s := b.status()
		d := s.Destinations[1]
		if d.Destination != "d" || d.Position != 10 || d.Lag != 10 || s.LastSeq != 20 {
			b.Errorf("cursor = %+v of %d, want d at 10 of 20", d, s.LastSeq)
		}
		if want := (ops.Count{N: 3 + 1 + 1}); d.Pending != want {
			b.Errorf("pending = %+v, want %+v", d.Pending, want)
		}
		if d.Failed.N != 1 || d.Quarantined.N != 2 {
			b.Errorf("failed, quarantined = %d, %d, want 1, 2", d.Failed.N, d.Quarantined.N)
		}
		if got := time.Duration(d.OldestPendingAge); got < time.Hour || got > time.Hour+time.Minute {
			b.Errorf("oldest pending age = %v, want an hour", got)
		}
		if d.RatePerSecond <= 0 || d.RatePerSecond > 6 {
			b.Errorf("rate = %v, want at most 6", d.RatePerSecond)
		}
		if got := s.Destinations[0].Pending; got != (ops.Count{N: 20}) {
			b.Errorf("pending of all = %+v, want 20", got)
		}
	})
}

// Nobody has moved the cursor over many events that the destination does not want: what lies behind those is late all the same.
func TestStatusSeesWhatIsLateBehindWhatIsNotWanted(t *testing.T) {
	onBoth(t, func(b *box) {
		b.events(5_000, "other", 2*time.Hour)
		b.cursor("d", 0, "wanted")
		if got := time.Duration(b.status().Destinations[0].OldestPendingAge); got != 0 {
			b.Errorf("oldest pending age = %v with nothing to deliver, want 0", got)
		}
		b.events(10, "wanted", time.Hour)
		if got := time.Duration(b.status().Destinations[0].OldestPendingAge); got < time.Hour || got > time.Hour+time.Minute {
			b.Errorf("oldest pending age = %v, want an hour", got)
		}
	})
}

// An event that is not available yet is not late.
func TestStatusAgeGoesByAvailability(t *testing.T) {
	onBoth(t, func(b *box) {
		b.events(1, "a", time.Hour)
		later := "clock_timestamp() + interval '1 hour'"
		if b.dialect == schema.SQLite {
			later = "cast((unixepoch('subsec') + 3600) * 1000000 as integer)"
		}
		b.exec("update outbox_event set available_at = " + later)
		b.cursor("d", 0)
		if d := b.status().Destinations[0]; d.OldestPendingAge != 0 || d.Pending.N != 1 {
			b.Errorf("age, pending = %v, %d, want 0, 1", time.Duration(d.OldestPendingAge), d.Pending.N)
		}
	})
}

// Above its limits status estimates or stops counting, and says so.
func TestStatusEstimates(t *testing.T) {
	onBoth(t, func(b *box) {
		b.events(20_000, "wanted", time.Second)
		b.events(20_000, "wanted", time.Second)
		b.cursor("d", 0)
		b.deliveries(10_050, "QUARANTINED", 1_000_000)
		d := b.status().Destinations[0]
		if want := (ops.Count{N: 40_000, Estimated: true}); d.Pending != want {
			b.Errorf("pending = %+v, want %+v", d.Pending, want)
		}
		if want := (ops.Count{N: 10_000, AtLeast: true}); d.Quarantined != want {
			b.Errorf("quarantined = %+v, want %+v", d.Quarantined, want)
		}
	})
}

// Late commits lie in the gaps below the cursor.
func TestStatusCountsWhatTurnedVisibleInAGap(t *testing.T) {
	b := newBox(t, schema.Postgres)
	b.events(10, "a", time.Minute)
	b.cursor("d", 10)
	b.exec(`update outbox_cursor set gaps = '{[2,4),[7,8),[500,600)}'`)
	d := b.status().Destinations[0]
	if got := time.Duration(d.OldestPendingAge); d.Pending.N != 3 || got < time.Minute {
		t.Errorf("pending, age = %d, %v, want 3 that are a minute old", d.Pending.N, got)
	}
}

func TestStatusTellsLeaseAndFailure(t *testing.T) {
	onBoth(t, func(b *box) {
		b.cursor("d", 0)
		now := map[schema.Dialect]string{schema.Postgres: "clock_timestamp()", schema.SQLite: "cast(unixepoch('subsec') * 1000000 as integer)"}[b.dialect]
		minute := map[schema.Dialect]string{schema.Postgres: "interval '1 minute'", schema.SQLite: "60000000"}[b.dialect]
		b.exec("update outbox_cursor set lease_owner = 'r1', lease_expires_at = " + now + " + " + minute +
			", failing_since = " + now + " - " + minute + ", last_error_code = 'DIAL', crash_count = 2")
		d := b.status().Destinations[0]
		if d.LeaseOwner != "r1" || d.FailingSince == nil || time.Since(*d.FailingSince) < time.Minute ||
			d.LastErrorCode != "DIAL" || d.CrashCount != 2 {
			b.Errorf("status = %+v, want r1, failing for a minute with DIAL, 2 crashes", d)
		}
		b.exec("update outbox_cursor set lease_expires_at = " + now + " - " + minute + ", failing_since = null")
		d = b.status().Destinations[0]
		if d.LeaseOwner != "" || d.FailingSince != nil || d.LastErrorCode != "" {
			b.Errorf("status = %+v, want no owner of an expired lease, and no failure", d)
		}
	})
}

func TestPauseAndResume(t *testing.T) {
	onBoth(t, func(b *box) {
		b.cursor("d", 0)
		b.must(b.Pause(b.Context(), "d", ops.Action{By: "ann", Reason: "their release"}))
		d := b.status().Destinations[0]
		if !d.Paused || d.PausedBy != "ann" || d.PausedReason != "their release" || d.PausedAt == nil || time.Since(*d.PausedAt) > time.Minute {
			b.Errorf("status = %+v, want paused by ann just now", d)
		}
		b.must(b.Pause(b.Context(), "d", ops.Action{By: "bob", Reason: "still"}))
		b.must(b.Resume(b.Context(), "d", ops.Action{By: "bob"}))
		if d := b.status().Destinations[0]; d.Paused || d.PausedBy != "" || d.PausedReason != "" {
			b.Errorf("status = %+v, want it resumed", d)
		}
		want := []string{
			`ann pause d their release {"paused":false} {"paused":true,"reason":"their release","by":"ann"}`,
			`bob pause d still {"paused":true,"reason":"their release","by":"ann"} {"paused":true,"reason":"still","by":"bob"}`,
			`bob resume d  {"paused":true,"reason":"still","by":"bob"} {"paused":false}`,
		}
		if got := b.actions(); strings.Join(got, "\n") != strings.Join(want, "\n") {
			b.Errorf("recorded:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
}

func TestPauseRefuses(t *testing.T) {
	onBoth(t, func(b *box) {
		b.cursor("d", 0)
		long := strings.Repeat("x", ops.MaxReason+1)
		for name, tt := range map[string]struct {
			do   func(context.Context, string, ops.Action) error
			to   string
			a    ops.Action
			want string
		}{
			"an unknown destination": {b.Pause, "e", ops.Action{By: "ann", Reason: "r"}, "pause e: " + ops.ErrUnknownDestination.Error()},
			"what is not paused":     {b.Resume, "d", ops.Action{By: "ann"}, "resume d: " + ops.ErrNotPaused.Error()},
			"nobody, for no reason": {b.Pause, "d", ops.Action{},
				"nobody is named who does it: say who you are\nthe reason is missing: say why, for the next one who looks"},
			"too much": {b.Resume, "d", ops.Action{By: "ann", Reason: long}, "a name may have 200 bytes and a reason 2000: shorten them"},
		} {
			if err := tt.do(b.Context(), tt.to, tt.a); err == nil || err.Error() != tt.want {
				b.Errorf("%s: %v, want %s", name, err, tt.want)
			}
		}
		if got := b.actions(); len(got) != 0 {
			b.Errorf("recorded %q, want nothing", got)
		}
		if err := b.Resume(b.Context(), "d", ops.Action{By: "ann"}); !errors.Is(err, ops.ErrNotPaused) {
			b.Errorf("errors.Is(%v, ErrNotPaused) = false", err)
		}
	})
}

func (b *box) actions() (lines []string) {
	b.Helper()
	rows, err := b.db.QueryContext(b.Context(), `select operator, action, destination, reason, before, after from outbox_operator_action order by id`)
	b.must(err)
	defer rows.Close()
	for rows.Next() {
		var f [6]string
		b.must(rows.Scan(&f[0], &f[1], &f[2], &f[3], &f[4], &f[5]))
		lines = append(lines, strings.Join(f[:], " "))
	}
	b.must(rows.Err())
	return lines
}

func TestNewRefusesASchema(t *testing.T) {
	if _, err := ops.New(nil, schema.SQLite, "integration"); err == nil {
		t.Error("New took a schema for SQLite")
	}
	if _, err := ops.New(nil, schema.Postgres, ""); err == nil {
		t.Error("New took no schema for PostgreSQL")
	}
}
