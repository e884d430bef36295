package sqlite_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/outbox/schema"
	"github.com/pillarbox-dev/pillarbox/relay"
	"github.com/pillarbox-dev/pillarbox/store/sqlite"
)

// database is a migrated file with a service's pool and a store.
type database struct {
	path  string
	db    *sql.DB
	store *sqlite.Store
}

// newDatabase makes one that is closed with the test. What the configuration leaves out gets its default.
func newDatabase(t testing.TB, c sqlite.Config) *database {
	t.Helper()
	if c.Path == "" {
		c.Path = filepath.Join(t.TempDir(), "shop.db")
	}
	db := openDB(t, c)
	if _, err := schema.Migrate(t.Context(), db, schema.SQLite, ""); err != nil {
		t.Fatal(err)
	}
	return &database{path: c.Path, db: db, store: openStore(t, c)}
}

func openDB(t testing.TB, c sqlite.Config) *sql.DB {
	t.Helper()
	db, err := sqlite.OpenDB(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Errorf("close the service's pool: %v", err)
		}
	})
	return db
}

func openStore(t testing.TB, c sqlite.Config) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close the store: %v", err)
		}
	})
	return s
}

// executor is a database or a transaction.
type executor interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// insert adds n events of one key, in one statement.
func insert(t testing.TB, db executor, key string, n int) {
	t.Helper()
	const insertSQL = `
with recursive n (i) as (select 1 union all select i + 1 from n where i < ?2)
insert into outbox_event (topic_name, partition_key, event_type, payload)
select 'orders', ?1, 'OrderPlaced', ?3 from n`
	if _, err := db.ExecContext(t.Context(), insertSQL, key, n, payload); err != nil {
		t.Fatalf("insert %d events: %v", n, err)
	}
}

// payload is 420 bytes, as in the project's benchmarks.
var payload = fmt.Sprintf(`{"text":"%0*d"}`, 420-len(`{"text":""}`), 0)

// read reads with bounds that do not matter.
func (d *database) read(t testing.TB, q relay.Query) relay.Page {
	t.Helper()
	if q.Limit == 0 {
		q.Limit = 100_000
	}
	if q.MaxBytes == 0 {
		q.MaxBytes = 1 << 30
	}
	page, err := d.store.Read(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	return page
}

// lease takes the lease of a destination for long.
func (d *database) lease(t testing.TB, destination string) relay.LeaseID {
	t.Helper()
	r := relay.AcquireRequest{Destination: destination, Owner: "relay-1", TTL: 10 * time.Minute}
	lease, ok, err := d.store.Acquire(t.Context(), r)
	if err != nil || !ok {
		t.Fatalf("acquire %s: got %v, %v, want the lease", destination, ok, err)
	}
	return lease.LeaseID
}

func (d *database) settle(t testing.TB, l relay.LeaseID, s relay.Settlement) {
	t.Helper()
	if _, err := d.store.Settle(t.Context(), l, s); err != nil {
		t.Fatal(err)
	}
}

// number returns the one number that a query gives.
func number(t testing.TB, db *sql.DB, query string, args ...any) (n int64) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), query, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

// texts returns the one column of texts that a query gives.
func texts(t testing.TB, db *sql.DB, query string) (all []string) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), query)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	defer rows.Close()
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}
