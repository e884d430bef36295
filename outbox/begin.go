package outbox

import (
	"context"
	"database/sql"
)

// Begin begins a transaction and returns it twice: as its driver has it, for the caller's own statements, and as a Tx, for this
// module's. It is how the receiving packages, webhook and idempotency, come by their transactions.
type Begin[T any] func(ctx context.Context) (T, Tx, error)

// BeginSQL begins transactions of database/sql. Nil options are the driver's defaults.
func BeginSQL(db *sql.DB, opts *sql.TxOptions) Begin[*sql.Tx] {
	return func(ctx context.Context) (*sql.Tx, Tx, error) {
		tx, err := db.BeginTx(ctx, opts)
		if err != nil {
			return nil, nil, err
		}
		return tx, tx, nil
	}
}

// BeginPgx begins transactions of a pool of pgx: outbox.BeginPgx(pool). The type parameters are inferred.
func BeginPgx[T PgxTx[R], R PgxRows](pool PgxPool[T]) Begin[T] {
	return func(ctx context.Context) (T, Tx, error) {
		tx, err := pool.Begin(ctx)
		if err != nil {
			return tx, nil, err
		}
		return tx, Pgx(tx), nil
	}
}

// PgxPool is the part of *pgxpool.Pool that BeginPgx needs.
type PgxPool[T any] interface {
	Begin(ctx context.Context) (T, error)
}
