package outbox

import (
	"context"
	"database/sql"
	"fmt"
)

// Tx is the caller's transaction: *sql.Tx (or what wraps one), or a pgx transaction as Pgx adapts it. A pool, a connection and
// *sql.DB have no Commit, so they do not compile.
type Tx interface {
	Commit() error
	Rollback() error
}

// Pgx adapts a transaction of pgx (pgx.Tx, *pgxpool.Tx) without importing it: box.Enqueue(ctx, outbox.Pgx(tx), event). The type
// parameter is inferred. Commit and Rollback are asked for to keep out *pgxpool.Pool and *pgx.Conn, which have neither.
func Pgx[R PgxRows](tx PgxTx[R]) Tx { return pgxTx[R]{tx} }

// PgxTx is the part of pgx.Tx that Enqueue needs; R is pgx.Rows.
type PgxTx[R PgxRows] interface {
	Query(ctx context.Context, sql string, args ...any) (R, error)
	Commit(ctx context.Context) error
	Rollback(ctx context.Context) error
}

// PgxRows is the part of pgx.Rows that Enqueue needs.
type PgxRows interface {
	Next() bool
	Scan(dest ...any) error
	Err() error
	Close()
}

// transaction is what Enqueue asks of either kind.
type transaction interface {
	// insertOne runs an INSERT of one row and tells whether it was written.
	insertOne(ctx context.Context, query string, args []any) (bool, error)
	// texts runs a statement that returns one column of text.
	texts(ctx context.Context, query string, args []any) ([]string, error)
}

type pgxTx[R PgxRows] struct{ tx PgxTx[R] }

func (p pgxTx[R]) Commit() error   { return p.tx.Commit(context.Background()) }
func (p pgxTx[R]) Rollback() error { return p.tx.Rollback(context.Background()) }

func (p pgxTx[R]) insertOne(ctx context.Context, query string, args []any) (bool, error) {
	ids, err := p.texts(ctx, query, args)
	return len(ids) == 1, err
}

func (p pgxTx[R]) texts(ctx context.Context, query string, args []any) ([]string, error) {
	rows, err := p.tx.Query(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	return scan(rows)
}

// sqlTx is what *sql.Tx and its wrappers have.
type sqlTx struct{ sqlMethods }

type sqlMethods interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// insertOne: *sql.Rows cost more than they tell here.
func (s sqlTx) insertOne(ctx context.Context, query string, args []any) (bool, error) {
	result, err := s.ExecContext(ctx, query, args...)
	if err != nil {
		return false, err
	}
	n, err := result.RowsAffected()
	return n == 1, err
}

func (s sqlTx) texts(ctx context.Context, query string, args []any) ([]string, error) {
	rows, err := s.QueryContext(ctx, query, args...) //nolint:rowserrcheck // scan does
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	return scan(rows)
}

func transactionOf(tx Tx) (transaction, error) {
	switch tx := tx.(type) {
	case transaction:
		return tx, nil
	case sqlMethods:
		return sqlTx{tx}, nil
	}
	return nil, fmt.Errorf("%T does not have ExecContext and QueryContext as *sql.Tx has: "+
		"pass a *sql.Tx, or outbox.Pgx(tx) of a pgx transaction", tx)
}

// scan reads all rows; the caller closes them.
func scan(rows interface {
	Next() bool
	Scan(dest ...any) error
	Err() error
}) ([]string, error) {
	var all []string
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return nil, err
		}
		all = append(all, text)
	}
	return all, rows.Err()
}
