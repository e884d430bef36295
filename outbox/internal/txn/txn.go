// Package txn runs statements in the caller's transaction, whatever its driver: it is the one place of this module that knows
// *sql.Tx from a transaction of pgx.
package txn

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/pillarbox-dev/pillarbox/outbox/schema"
)

// Tx is a transaction of either kind. Only types that every driver takes may be arguments: text, int64, []byte, time and nil.
type Tx interface {
	// InsertOne runs an INSERT of one row and tells whether it was written. The statement returns a column of the row.
	InsertOne(ctx context.Context, query string, args []any) (bool, error)
	// Query runs a statement and calls each for every row, with what scans it. An error of each ends it.
	Query(ctx context.Context, query string, args []any, each func(scan Scan) error) error
}

// Scan reads the columns of one row.
type Scan func(dest ...any) error

// Of returns the transaction behind an outbox.Tx.
func Of(tx any) (Tx, error) {
	switch tx := tx.(type) {
	case Tx:
		return tx, nil
	case sqlMethods:
		return sqlTx{tx}, nil
	}
	return nil, fmt.Errorf("%T does not have ExecContext and QueryContext as *sql.Tx has: "+
		"pass a *sql.Tx, or outbox.Pgx(tx) of a pgx transaction", tx)
}

// Texts runs a statement that returns one column of text.
func Texts(ctx context.Context, tx Tx, query string, args ...any) ([]string, error) {
	var all []string
	err := tx.Query(ctx, query, args, func(scan Scan) error {
		var text string
		if err := scan(&text); err != nil {
			return err
		}
		all = append(all, text)
		return nil
	})
	return all, err
}

// Rows is what the rows of both kinds have.
type Rows interface {
	Next() bool
	Scan(dest ...any) error
	Err() error
}

// Each calls each for every row; the caller closes them.
func Each(rows Rows, each func(scan Scan) error) error {
	for rows.Next() {
		if err := each(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

// sqlTx is what *sql.Tx and its wrappers have.
type sqlTx struct{ sqlMethods }

type sqlMethods interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// InsertOne: *sql.Rows cost more than they tell here.
func (s sqlTx) InsertOne(ctx context.Context, query string, args []any) (bool, error) {
	result, err := s.ExecContext(ctx, query, args...)
	if err != nil {
		return false, err
	}
	n, err := result.RowsAffected()
	return n == 1, err
}

func (s sqlTx) Query(ctx context.Context, query string, args []any, each func(scan Scan) error) error {
	rows, err := s.QueryContext(ctx, query, args...) //nolint:rowserrcheck // Each does
	if err != nil {
		return err
	}
	defer rows.Close()
	return Each(rows, each)
}

// State returns PostgreSQL's error code, from the errors of pgx and pq; "" when there is none.
func State(err error) string {
	var state interface{ SQLState() string }
	if errors.As(err, &state) {
		return state.SQLState()
	}
	return ""
}

// Busy knows SQLite's own words for SQLITE_BUSY; drivers pass them on.
func Busy(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "database is locked") || strings.Contains(err.Error(), "SQLITE_BUSY"))
}

// Hint says what to do about the errors of a database that have one cause in practice; it starts with a colon, or is empty.
func Hint(err error) string {
	switch {
	case strings.Contains(err.Error(), "no such table"):
		return missingTables
	case Busy(err):
		return ": another transaction writes: begin this one with BEGIN IMMEDIATE, and set a busy timeout"
	}
	switch State(err) {
	case "42P01", "42883", "3F000": // undefined_table, undefined_function, invalid_schema_name
		return missingTables
	case "42501": // insufficient_privilege
		return ": `pillarbox migrate --print-roles` prints what the service's role needs"
	case "25P02": // in_failed_sql_transaction
		return ": an earlier statement of this transaction has failed: roll back and look at its error"
	case "40001", "40P01": // another transaction was in the way
		return ": roll back and run the whole transaction again"
	}
	return ""
}

const missingTables = ": are the tables there, in the schema of Options.Schema? `pillarbox migrate` makes them"

// Table returns a table's or a function's name with the schema's before it; SQLite has no schemas.
func Table(d schema.Dialect, schemaName, name string) string {
	if d == schema.SQLite {
		return name
	}
	return schema.Quote(schemaName) + "." + name
}

// CheckWait returns what is wrong with an option that bounds the wait for another transaction.
func CheckWait(wait time.Duration) error {
	if wait > MaxWait {
		return fmt.Errorf("option Wait is %v: choose at most %v; a connection is held meanwhile", wait, MaxWait)
	}
	return nil
}

// The wait for another transaction, by default and at most.
const (
	DefaultWait = time.Second
	MaxWait     = time.Minute
)

// Milliseconds returns a wait as lock_timeout takes it, for which 0 means for ever.
func Milliseconds(wait time.Duration) int64 { return max(1, wait.Milliseconds()) }

// Prune runs a statement that deletes: PostgreSQL's returns the number of rows, SQLite's returns the rows.
func Prune(ctx context.Context, tx Tx, d schema.Dialect, query string, args ...any) (int, error) {
	rows, err := Texts(ctx, tx, query, args...)
	if err != nil || d == schema.SQLite {
		return len(rows), err
	}
	if len(rows) != 1 {
		return 0, fmt.Errorf("%d rows were returned, want 1", len(rows))
	}
	return strconv.Atoi(rows[0])
}
