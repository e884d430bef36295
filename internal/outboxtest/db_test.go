// Package outboxtest tests the module outbox with real databases. The module itself has no dependency, so its tests
// that need a driver live here.
package outboxtest

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/pillarbox-dev/pillarbox/outbox/schema"
)

func openPostgres(t testing.TB, url string) *sql.DB {
	t.Helper()
	return open(t, "pgx", url)
}

// openSQLite opens a file as a service would: writers wait for each other.
func openSQLite(t testing.TB, file string) *sql.DB {
	t.Helper()
	return open(t, "sqlite", "file:"+file+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(wal)")
}

func open(t testing.TB, driver, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func migrate(t testing.TB, db *sql.DB, d schema.Dialect, name string) {
	t.Helper()
	if _, err := schema.Migrate(t.Context(), db, d, name); err != nil {
		t.Fatal(err)
	}
}

// execer is a database, a connection or a transaction.
type execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

func run(t testing.TB, db execer, query string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

type queryer interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// query scans the single row that a query gives into one variable.
func query[T any](t testing.TB, db queryer, into *T, query string, args ...any) {
	t.Helper()
	all := column[T](t, db, query, args...)
	if len(all) != 1 {
		t.Fatalf("%s: %d rows, want 1", query, len(all))
	}
	*into = all[0]
}

// list returns a column of text.
func list(t testing.TB, db queryer, query string) []string {
	t.Helper()
	return column[string](t, db, query)
}

func column[T any](t testing.TB, db queryer, query string, args ...any) []T {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), query, args...)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	defer rows.Close()
	var all []T
	for rows.Next() {
		var v T
		if err := rows.Scan(&v); err != nil {
			t.Fatalf("%s: %v", query, err)
		}
		all = append(all, v)
	}
	if err := rows.Err(); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return all
}

// qualified names a table of the outbox.
func qualified(d schema.Dialect, schemaName, table string) string {
	if d == schema.SQLite {
		return table
	}
	return schema.Quote(schemaName) + "." + table
}

// newRole makes a login role; roles are the server's, so its name has the database's in it.
func newRole(t testing.TB, db *sql.DB, name string) string {
	t.Helper()
	var database string
	query(t, db, &database, "select current_database()")
	role := fmt.Sprintf("%s of \"%s\"", name, database)
	run(t, db, "create role "+schema.Quote(role)+" login")
	t.Cleanup(func() {
		if _, err := db.ExecContext(context.Background(),
			"drop owned by "+schema.Quote(role)+"; drop role "+schema.Quote(role)); err != nil {
			t.Errorf("clean up: %v", err)
		}
	})
	return role
}

// as returns a connection string with another user.
func as(dsn, role string) string {
	return strings.Replace(dsn, "postgres@", url.PathEscape(role)+"@", 1)
}
