package ops_test

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/internal/pgtest"
	"github.com/pillarbox-dev/pillarbox/ops"
	"github.com/pillarbox-dev/pillarbox/outbox/schema"
	"github.com/pillarbox-dev/pillarbox/store/sqlite"
)

func (b *box) reconcile(c ops.ReconcileConfig) ops.ReconcileReport {
	b.Helper()
	r, err := b.Reconcile(b.Context(), c)
	b.must(err)
	return r
}

// found returns "check problem seq" of all rows of a report, and its errors.
func found(r ops.ReconcileReport) (all []string) {
	for _, f := range r.Findings {
		for _, row := range f.Rows {
			all = append(all, fmt.Sprint(f.Check, " ", row["problem"], " ", row["seq"]))
		}
	}
	for check, text := range r.Errors {
		all = append(all, check+": "+text)
	}
	return all
}

func (b *box) wantFound(what string, r ops.ReconcileReport, want ...string) {
	b.Helper()
	if got := found(r); !slices.Equal(got, want) {
		b.Errorf("%s: found\n%s\nwant\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestReconcileLedger(t *testing.T) {
	onBoth(t, func(b *box) {
		ledger := ops.ReconcileConfig{Ledgers: []string{"d", "never started"}}
		b.wantFound("an empty outbox", b.reconcile(ledger))
		b.events(20, "orders.x", time.Minute)
		b.events(5, "other", time.Minute)
		b.cursor("d", 22, "orders*")
		b.wantFound("nothing delivered yet", b.reconcile(ledger))
		b.deliveries(16, "PUBLISHED", 5) // 5–20; it began at 5
		b.wantFound("all is well", b.reconcile(ledger))
		b.exec("delete from outbox_delivery where seq in (7, 8, 20)")
		b.exec("delete from outbox_event where seq in (10, 12, 14)")
		b.exec("update outbox_delivery set status = 'DISCARDED' where seq = 12")
		b.exec("insert into outbox_event_archive select * from outbox_event where seq = 5")
		b.exec("update outbox_event_archive set seq = 14")
		b.wantFound("three lost, one orphan", b.reconcile(ledger), "ledger no row in the ledger 7", "ledger no row in the ledger 8",
			"ledger no row in the ledger 20", "ledger its event is gone 10")
		if b.dialect == schema.Postgres { // the cursor has passed 8 and 20, and knows that it owes them
			b.exec("update outbox_cursor set gaps = '{[8,9),[18,25)}'")
			b.wantFound("two in gaps", b.reconcile(ledger), "ledger no row in the ledger 7", "ledger its event is gone 10")
		}
	})
}

// A window looks at what is young; a limit counts no further; rows stay few.
func TestReconcileIsBounded(t *testing.T) {
	onBoth(t, func(b *box) {
		b.events(6_000, "a", 48*time.Hour)
		b.events(6_000, "a", time.Minute)
		b.cursor("d", 12_000)
		b.deliveries(1, "PUBLISHED", 1)
		r := b.reconcile(ops.ReconcileConfig{Ledgers: []string{"d"}, Since: 24 * time.Hour})
		if f := r.Findings[0]; f.Count != 6_000 || f.AtLeast || len(f.Rows) != 100 || f.Rows[0]["seq"] != int64(6_001) {
			b.Errorf("%d found (%v), %d shown from %v on; want 6,000 from 6,001 on", f.Count, f.AtLeast, len(f.Rows), f.Rows[0]["seq"])
		}
		r = b.reconcile(ops.ReconcileConfig{Ledgers: []string{"d"}, Limit: 10})
		if f := r.Findings[0]; f.Count < 10 || f.Count > 5_000 || !f.AtLeast {
			b.Errorf("%d found, at least: %v, want it to stop after a chunk", f.Count, f.AtLeast)
		}
	})
}

// consumer is a second database with an inbox.
func (b *box) consumer() (*sql.DB, string) {
	b.Helper()
	name, db, err := "", (*sql.DB)(nil), error(nil)
	if b.dialect == schema.Postgres {
		name = "consumer"
		db, err = sql.Open("pgx", pgtest.Database(b.T))
	} else {
		db, err = sqlite.OpenDB(b.Context(), sqlite.Config{Path: filepath.Join(b.TempDir(), "consumer.db")})
	}
	b.must(err)
	b.Cleanup(func() { db.Close() })
	_, err = schema.Migrate(b.Context(), db, b.dialect, name)
	b.must(err)
	return db, name
}

func TestReconcileInbox(t *testing.T) {
	onBoth(t, func(b *box) {
		db, name := b.consumer()
		table, ago := "outbox_inbox", func(d time.Duration) string {
			return fmt.Sprintf("cast(unixepoch('subsec') * 1000000 as integer) - %d", d.Microseconds())
		}
		if b.dialect == schema.Postgres {
			table, ago = "consumer.outbox_inbox", func(d time.Duration) string {
				return fmt.Sprintf("clock_timestamp() - interval '%d s'", int(d.Seconds()))
			}
		}
		handled := func(consumer string, seqs ...int64) {
			for _, seq := range seqs {
				var id string
				b.must(b.db.QueryRowContext(b.Context(), "select event_id from outbox_event where seq = $1", seq).Scan(&id))
				_, err := db.ExecContext(b.Context(), "insert into "+table+" (consumer, event_id, body_hash) values ($1, $2, '00')", consumer, id)
				b.must(err)
			}
		}
		check := ops.InboxCheck{Destination: "d", Consumer: "billing", DB: db, Dialect: b.dialect, Schema: name, After: time.Minute, Keeps: 24 * time.Hour}
		b.events(8, "a", time.Hour)
		b.cursor("d", 8)
		b.deliveries(8, "PUBLISHED", 1)
		b.exec("update outbox_delivery set published_at = " + ago(time.Hour))
		handled("billing", 1, 2)
		handled("shipping", 3)
		b.exec("update outbox_delivery set status = 'QUARANTINED', published_at = null where seq = 4")
		b.exec("update outbox_delivery set status = 'DISCARDED' where seq = 5")
		b.exec("update outbox_delivery set published_at = " + ago(time.Second) + " where seq = 6")  // young
		b.exec("update outbox_delivery set published_at = " + ago(48*time.Hour) + " where seq = 7") // pruned by now
		config := ops.ReconcileConfig{Inboxes: []ops.InboxCheck{check}, Progress: ops.ReconcileProgress{}}
		b.wantFound("first", b.reconcile(config), "inbox not in the inbox 3", "inbox not in the inbox 8")

		// What was open is looked at again, and a finding stays until it is mended.
		handled("billing", 8)
		b.exec("update outbox_delivery set status = 'PUBLISHED', published_at = " + ago(time.Hour) + " where seq in (4, 6)")
		b.wantFound("later", b.reconcile(config), "inbox not in the inbox 3", "inbox not in the inbox 4", "inbox not in the inbox 6")
		handled("billing", 3, 4, 6)
		b.wantFound("mended", b.reconcile(config))
		b.wantFound("and after", b.reconcile(config))
	})
}

// What the cursor had not seen when it passed stays open until it is settled or dead: by then the run is far beyond it.
func TestReconcileComesBackToGaps(t *testing.T) {
	b := newBox(t, schema.Postgres)
	db, name := b.consumer()
	insert := "insert into outbox_event (topic_name, event_type) select 'a', 'T' from generate_series(1, $1)"
	open := func(n int) *sql.Tx {
		tx, err := b.db.BeginTx(b.Context(), nil)
		b.must(err)
		_, err = tx.ExecContext(b.Context(), insert, n)
		b.must(err)
		return tx
	}
	b.events(1, "a", time.Hour)
	late := open(4) // 2–5
	b.events(1, "a", time.Hour)
	dead := open(3) // 7–9
	b.events(1, "a", time.Hour)
	b.cursor("d", 10)
	b.exec("update outbox_cursor set gaps = '{[2,6),[7,10)}'")
	b.deliveries(1, "PUBLISHED", 1)
	b.deliveries(1, "PUBLISHED", 6)
	b.deliveries(1, "PUBLISHED", 10)
	b.exec("update outbox_delivery set published_at = clock_timestamp() - interval '1 hour'")
	handled := func(seqs ...int64) {
		for _, seq := range seqs {
			var id string
			b.must(b.db.QueryRowContext(b.Context(), "select event_id from outbox_event where seq = $1", seq).Scan(&id))
			_, err := db.ExecContext(b.Context(), "insert into consumer.outbox_inbox (consumer, event_id, body_hash) values ('c', $1, '')", id)
			b.must(err)
		}
	}
	handled(1, 6, 10)
	config := ops.ReconcileConfig{Ledgers: []string{"d"}, Progress: ops.ReconcileProgress{}, Inboxes: []ops.InboxCheck{
		{Destination: "d", Consumer: "c", DB: db, Dialect: b.dialect, Schema: name}}}
	progress := func() string {
		b.Helper()
		text, err := json.Marshal(config.Progress)
		b.must(err)
		return string(text)
	}
	b.wantFound("with both open", b.reconcile(config))
	b.wantFound("and again", b.reconcile(config))
	b.must(late.Commit())
	b.wantFound("the relay has not seen it yet", b.reconcile(config))

	// The relay takes 3 in the middle of the gap, then the others: 4 is lost, the event of 5 gets lost, 2 does not arrive.
	b.deliveries(1, "PUBLISHED", 3)
	b.exec("update outbox_cursor set gaps = '{[2,3),[4,6),[7,10)}'")
	b.wantFound("3 was published just now", b.reconcile(config))
	b.deliveries(1, "PUBLISHED", 2)
	b.deliveries(1, "PUBLISHED", 5)
	b.exec("update outbox_delivery set published_at = clock_timestamp() - interval '1 hour'")
	handled(3, 5)
	b.exec("delete from outbox_event where seq = 5")
	b.exec("update outbox_cursor set gaps = '{[7,10)}'")
	found := []string{"ledger no row in the ledger 4", "ledger its event is gone 5", "inbox not in the inbox 2"}
	b.wantFound("once it was taken", b.reconcile(config), found...)
	b.wantFound("and it stays", b.reconcile(config), found...)
	if !strings.Contains(progress(), "[7,9]") {
		t.Errorf("progress = %s, want 7 to 9 open in it", progress())
	}
	b.must(dead.Rollback())
	b.exec("update outbox_cursor set gaps = '{}'")
	b.deliveries(1, "PUBLISHED", 4)
	b.exec("update outbox_delivery set status = 'DISCARDED' where seq in (4, 5)")
	handled(2)
	b.wantFound("when all is mended", b.reconcile(config))
	if want := `{"inbox/d/c":{"through":10},"ledger/d":{"through":10},"log/d":{"through":10}}`; progress() != want {
		t.Errorf("progress = %s, want %s", progress(), want)
	}
}

// More gaps than are watched: the run stops before the first of the others, and goes on when there are fewer.
func TestReconcileStopsBeforeTooManyGaps(t *testing.T) {
	b := newBox(t, schema.Postgres)
	b.events(1, "a", time.Hour)
	b.exec("select setval('outbox_event_seq', 30000)")
	b.events(1, "a", time.Hour) // 30,001
	b.cursor("d", 30_001)
	b.deliveries(1, "PUBLISHED", 1)
	b.exec(`update outbox_cursor set gaps = (select range_agg(int8range(i, i + 1)) from generate_series(2, 24000, 2) i)`)
	config := ops.ReconcileConfig{Ledgers: []string{"d"}, Progress: ops.ReconcileProgress{}}
	r := b.reconcile(config)
	if text := r.Errors["ledger"]; !strings.Contains(text, "not settled") {
		t.Errorf("errors = %q, findings %v, want that it does not go on", r.Errors, found(r))
	}
	b.exec(`update outbox_cursor set gaps = '{}'`)
	b.wantFound("with fewer", b.reconcile(config), "ledger no row in the ledger 30001")
}

// Too much that is not settled is said, and what was reached is kept.
func TestReconcileWatchesNoMoreThanItCan(t *testing.T) {
	b := newBox(t, schema.Postgres)
	db, name := b.consumer()
	b.events(15_001, "a", time.Hour)
	b.cursor("d", 15_001)
	b.deliveries(15_001, "FAILED", 1)
	config := ops.ReconcileConfig{Progress: ops.ReconcileProgress{}, Inboxes: []ops.InboxCheck{
		{Destination: "d", Consumer: "c", DB: db, Dialect: b.dialect, Schema: name}}}
	r := b.reconcile(config)
	if text := r.Errors["inbox"]; !strings.Contains(text, "10,000 deliveries are not settled") {
		t.Errorf("errors = %q, want one that says so", r.Errors)
	}
	b.exec("update outbox_delivery set status = 'PUBLISHED', published_at = clock_timestamp() - interval '1 hour'")
	r = b.reconcile(config)
	if len(r.Errors) > 0 || len(r.Findings) != 1 || r.Findings[0].Count != 10_000 || !r.Findings[0].AtLeast {
		t.Errorf("report = %+v, want 10,000 or more found", r.Errors)
	}
}

func TestReconcileQueries(t *testing.T) {
	onBoth(t, func(b *box) {
		b.exec(`create table hub (id integer primary key, state text)`)
		b.exec(`insert into hub values (1, 'REGISTERED'), (2, 'REGISTERED'), (3, 'NEW')`)
		b.exec(`insert into outbox_event (topic_name, event_type, aggregate_id) values ('hub', 'HubRegistered', '1')`)
		r := b.reconcile(ops.ReconcileConfig{Queries: []ops.ReconcileQuery{
			{Name: "well", SQL: "select 1 where false"},
			{Name: "hubs", Hint: "tell them", SQL: `select h.id, h.state from hub h where h.state = 'REGISTERED'
				and not exists (select 1 from outbox_event e where e.aggregate_id = cast(h.id as text)) -- a comment
				; `},
			{Name: "writes", SQL: "delete from hub"},
			{Name: "two", SQL: "select 1; delete from hub"},
			{Name: "unknown", SQL: "select * from no_such_table"},
			{Name: "many", SQL: "with recursive n(i) as (select 1 union all select i + 1 from n where i < 100000) select i, null as absent from n"},
		}})
		if want := []string{"well", "hubs", "writes", "two", "unknown", "many"}; !slices.Equal(r.Checks, want) {
			b.Errorf("checks = %q, want %q", r.Checks, want)
		}
		if len(r.Errors) != 3 || r.Errors["writes"] == "" || r.Errors["two"] == "" || r.Errors["unknown"] == "" {
			b.Errorf("errors = %q, want those of what writes and of what is not there", r.Errors)
		}
		if len(r.Findings) != 2 {
			b.Fatalf("findings = %+v, want two", r.Findings)
		}
		hubs, many := r.Findings[0], r.Findings[1]
		if hubs.Check != "hubs" || hubs.Count != 1 || hubs.Hint != "tell them" || fmt.Sprint(hubs.Rows) != "[map[id:2 state:REGISTERED]]" {
			b.Errorf("finding = %+v, want hub 2", hubs)
		}
		if many.Count != 10_000 || !many.AtLeast || len(many.Rows) != 100 || many.Rows[0]["absent"] != nil {
			b.Errorf("%d found, at least: %v, %d shown, want 10,000 or more and 100", many.Count, many.AtLeast, len(many.Rows))
		}
		var hubsLeft int
		b.must(b.db.QueryRowContext(b.Context(), "select count(*) from hub").Scan(&hubsLeft))
		if hubsLeft != 3 {
			b.Errorf("%d hubs are left, want 3", hubsLeft)
		}
		b.exec("insert into hub values (4, 'NEW')") // the pool can write again
	})
}

// What JSON has no number for is shown as text, and the task keeps it.
func TestReconcileKeepsWhatIsNoNumber(t *testing.T) {
	onBoth(t, func(b *box) {
		query, want := "select 9e999 as up, -9e999 as down, 1.5 as plain", "map[down:-Inf plain:1.5 up:+Inf]"
		if b.dialect == schema.Postgres {
			query = `select 'NaN'::float8 as a, 'Infinity'::float8 as b, '-Infinity'::float4 as c, 'NaN'::numeric as d, 1.5::float8 as e,
				'infinity'::timestamptz as f`
			want = "map[a:NaN b:+Inf c:-Inf d:NaN e:1.5 f:infinity]"
		}
		b.must(b.ReconcileOn(b.Context(), ops.ReconcileConfig{Queries: []ops.ReconcileQuery{{Name: "q", SQL: query}}}))
		s, err := b.LastReconciliation(b.Context())
		b.must(err)
		if f := s.Report.Findings; len(f) != 1 || len(f[0].Rows) != 1 || fmt.Sprint(f[0].Rows[0]) != want {
			b.Errorf("kept %+v, want %s", f, want)
		}
	})
}

func TestReconcileRefuses(t *testing.T) {
	b := newBox(t, schema.SQLite)
	_, err := b.Reconcile(t.Context(), ops.ReconcileConfig{
		Queries: []ops.ReconcileQuery{{SQL: "select 1"}, {Name: "ledger", SQL: "select 1"}, {Name: "a", SQL: " ;"}, {Name: "a", SQL: "select 1"}},
		Inboxes: []ops.InboxCheck{{Destination: "d", DB: b.db, Dialect: schema.SQLite, After: time.Hour, Keeps: time.Minute}},
		Since:   -1,
	})
	if err == nil {
		t.Fatal("it took what makes no sense")
	}
	for _, want := range []string{"query 1 has no name", `"ledger": the name is taken`, `"a" has no SQL`, `"a": the name is taken`,
		"wants a destination", "keeps is longer", "since and limit"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error = %v, want %q in it", err, want)
		}
	}
}

// A role without rights on the user's tables is told what it lacks.
func TestReconcileSaysWhichGrantIsMissing(t *testing.T) {
	b := newBox(t, schema.Postgres)
	b.exec("create table business (id int)")
	o := b.as(t, func(name, role string) (string, error) { return schema.PrintRoles(name, "", role, "") })
	r, err := o.Reconcile(t.Context(), ops.ReconcileConfig{Queries: []ops.ReconcileQuery{{Name: "q", SQL: `select * from "Out ""box""".business`}}})
	b.must(err)
	if text := r.Errors["q"]; !strings.Contains(text, "grant select on the tables of the query") {
		t.Errorf("errors = %q, want a hint about the grant", r.Errors)
	}
}

// The scheduled run keeps its report and goes on where it was.
func TestReconcileOnASchedule(t *testing.T) {
	onBoth(t, func(b *box) {
		if s, err := b.LastReconciliation(b.Context()); err != nil || !s.Report.At.IsZero() {
			b.Errorf("before the first run: %+v, %v, want nothing", s, err)
		}
		b.events(20, "a", time.Minute)
		b.cursor("d", 20)
		b.deliveries(5, "PUBLISHED", 1)
		config := ops.ReconcileConfig{Ledgers: []string{"d"}, Since: 24 * time.Hour}
		b.must(b.ReconcileOn(b.Context(), config))
		s, err := b.LastReconciliation(b.Context())
		b.must(err)
		if f := s.Report.Findings; len(f) != 1 || f[0].Count != 15 || len(f[0].Rows) != 10 || s.LastSuccess != s.Report.At || s.LastSuccess.IsZero() {
			b.Errorf("kept %+v, want 15 found and 10 rows of them", s)
		}
		b.deliveries(15, "PUBLISHED", 6)
		config.Queries = []ops.ReconcileQuery{{Name: "broken", SQL: "select nonsense"}}
		if err := b.ReconcileOn(b.Context(), config); err == nil || !strings.Contains(err.Error(), "1 of 2 checks could not be made") {
			b.Errorf("error = %v, want one about the broken query", err)
		}
		again, err := b.LastReconciliation(b.Context())
		b.must(err)
		if len(again.Report.Findings) != 0 || again.LastSuccess != s.LastSuccess || again.Report.Errors["broken"] == "" {
			b.Errorf("kept %+v, want the finding mended and no success", again)
		}
	})
}
