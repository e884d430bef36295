package ops_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/ops"
	"github.com/pillarbox-dev/pillarbox/outbox/schema"
)

func (b *box) health() ops.Health {
	b.Helper()
	h, err := b.Health(b.Context())
	b.must(err)
	return h
}

func TestHealthOfAnEmptyOutbox(t *testing.T) {
	onBoth(t, func(b *box) {
		h := b.health()
		if want := map[schema.Dialect]string{schema.Postgres: "PostgreSQL 1", schema.SQLite: "SQLite 3"}[b.dialect]; !strings.HasPrefix(h.Version, want) {
			b.Errorf("version = %q, want one that begins with %q", h.Version, want)
		}
		if h.DatabaseBytes == 0 || time.Since(h.At).Abs() > time.Minute || h.LockWaits != 0 {
			b.Errorf("health = %+v, want a size, the time, and nobody who waits", h)
		}
		if h.Advice == nil || len(h.Advice) != 0 {
			b.Errorf("advice = %q, want an empty list", h.Advice)
		}
		names := map[string]bool{}
		for _, table := range h.Tables {
			names[table.Table] = true
		}
		for _, name := range []string{"outbox_event", "outbox_delivery", "outbox_cursor"} {
			if !names[name] {
				b.Errorf("tables = %+v, want %s among them", h.Tables, name)
			}
		}
	})
}

func (b *box) table(name string) ops.TableHealth {
	b.Helper()
	for _, table := range b.health().Tables {
		if table.Table == name {
			return table
		}
	}
	b.Fatalf("table %s is not there", name)
	return ops.TableHealth{}
}

func TestHealthTellsSizes(t *testing.T) {
	onBoth(t, func(b *box) {
		b.events(5_000, "orders", time.Minute)
		b.deliveries(200, "PUBLISHED", 1)
		if b.dialect == schema.SQLite {
			if got := b.table("outbox_event").Rows; got != 5_000 {
				b.Errorf("events = %d, want 5,000", got)
			}
			if got := b.table("outbox_delivery").Rows; got != 200 {
				b.Errorf("deliveries = %d, want 200", got)
			}
			if got := b.health().WALBytes; got == 0 {
				b.Error("the WAL file has no size")
			}
			return
		}
		b.exec("delete from outbox_event where seq <= 1000")
		b.exec("vacuum analyze outbox_event")
		got := b.table("outbox_event")
		if got.Rows != 4_000 || got.TableBytes < 4_000*50 || got.IndexBytes == 0 || got.LastVacuum == nil || got.LastAnalyzed == nil {
			b.Errorf("outbox_event = %+v, want 4,000 rows with their bytes, vacuumed and analyzed", got)
		}
	})
}

// An old transaction, be it open or prepared, holds vacuum back; whoever it is is named.
func TestHealthFindsTheOldestTransaction(t *testing.T) {
	b := newBox(t, schema.Postgres)
	b.exec("begin; select pg_current_xact_id(); prepare transaction 'left ''behind'''")
	defer b.exec("rollback prepared 'left ''behind'''")
	first := b.health().OldestTransaction
	if first <= 0 {
		t.Fatal("a prepared transaction has no age")
	}
	if again := b.health().OldestTransaction; again <= first {
		t.Errorf("its age went from %v to %v, want it to grow", first, again)
	}
}

func TestHealthCountsWhoWaitsForALock(t *testing.T) {
	b := newBox(t, schema.Postgres)
	b.cursor("d", 0)
	holder, err := b.db.BeginTx(t.Context(), nil)
	b.must(err)
	_, err = holder.ExecContext(t.Context(), "update outbox_cursor set position = 1")
	b.must(err)
	waiting := make(chan error, 2)
	for range 2 {
		go func() {
			_, err := b.db.ExecContext(t.Context(), "update outbox_cursor set position = 2")
			waiting <- err
		}()
	}
	for deadline := time.Now().Add(20 * time.Second); b.health().LockWaits != 2; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d sessions wait, want 2", b.health().LockWaits)
		}
	}
	b.must(holder.Rollback())
	for range 2 {
		b.must(<-waiting)
	}
	if got := b.health().LockWaits; got != 0 {
		t.Errorf("%d sessions wait afterwards, want none", got)
	}
}

// What the catalogue says reaches the advice.
func TestHealthAdvises(t *testing.T) {
	b := newBox(t, schema.Postgres)
	b.exec("alter table outbox_delivery set (autovacuum_enabled = false)")
	b.exec("update pg_index set indisvalid = false where indexrelid = 'outbox_delivery_due'::regclass")
	b.cursor("d", 100_000)
	b.exec(`update outbox_cursor set gaps = (select range_agg(int8range(i, i + 1)) from generate_series(1, 20000, 2) i)`)
	got := strings.Join(b.health().Advice, "\n")
	for _, want := range []string{"autovacuum is switched off for outbox_delivery", "not valid (outbox_delivery_due)", "10,000 ranges of gaps"} {
		if !strings.Contains(got, want) {
			t.Errorf("advice:\n%s\nwant %q in it", got, want)
		}
	}
}

// The relay's role may look; it is told that it does not see everybody.
func TestHealthAsTheRelaysRole(t *testing.T) {
	b := newBox(t, schema.Postgres)
	o := b.as(t, func(name, role string) (string, error) { return schema.PrintRoles(name, "", role, "") })
	h, err := o.Health(t.Context())
	b.must(err)
	if len(h.Advice) != 1 || !strings.Contains(h.Advice[0], "pg_read_all_stats") {
		t.Errorf("advice = %q, want one about what the role does not see", h.Advice)
	}
}

// as returns an Ops over the same outbox for a new role that has the grants.
func (b *box) as(t *testing.T, grants func(schemaName, role string) (string, error)) *ops.Ops {
	t.Helper()
	role := fmt.Sprintf("role %d", time.Now().UnixNano())
	b.exec("create role " + schema.Quote(role) + " login")
	text, err := grants(`Out "box"`, role)
	b.must(err)
	b.exec(text)
	var url string
	b.must(b.db.QueryRowContext(t.Context(), `select format('host=%s port=%s dbname=%s sslmode=disable', host(inet_server_addr()),
		inet_server_port(), current_database())`).Scan(&url))
	db, err := sql.Open("pgx", url+" user='"+role+"'")
	b.must(err)
	t.Cleanup(func() {
		b.must(db.Close())
		_, err := b.db.ExecContext(context.Background(), "drop owned by "+schema.Quote(role)+"; drop role "+schema.Quote(role))
		b.must(err)
	})
	o, err := ops.New(db, schema.Postgres, `Out "box"`)
	b.must(err)
	return o
}
