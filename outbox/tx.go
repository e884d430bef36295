package outbox

import (
	"context"

	"github.com/pillarbox-dev/pillarbox/outbox/internal/txn"
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

type pgxTx[R PgxRows] struct{ tx PgxTx[R] }

func (p pgxTx[R]) Commit() error   { return p.tx.Commit(context.Background()) }
func (p pgxTx[R]) Rollback() error { return p.tx.Rollback(context.Background()) }

// InsertOne and Query are what the packages of this module ask of a transaction: see internal/txn.
func (p pgxTx[R]) InsertOne(ctx context.Context, query string, args []any) (written bool, err error) {
	err = p.Query(ctx, query, args, func(txn.Scan) error { written = true; return nil })
	return written, err
}

func (p pgxTx[R]) Query(ctx context.Context, query string, args []any, each func(scan txn.Scan) error) error {
	rows, err := p.tx.Query(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	return txn.Each(rows, each)
}
