package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"time"

	"github.com/pillarbox-dev/pillarbox/relay"
)

const fenceSQL = `
select settle_number from outbox_cursor
 where destination = ?1 and shard = 0 and lease_owner = ?2 and lease_epoch = ?3`

// transaction is one BEGIN IMMEDIATE transaction: it holds the write lock.
type transaction struct {
	ctx context.Context
	tx  *sql.Tx
	// now is the time, in microseconds, when the write lock was had: waiting for it may take long.
	now int64
}

// write runs f in a transaction and commits it, or rolls it back when f fails.
func (s *Store) write(ctx context.Context, op string, f func(*transaction) error) error {
	if err := s.checkFile(); err != nil {
		return s.failed(ctx, op, err)
	}
	tx, err := s.writer.BeginTx(ctx, nil)
	if err != nil {
		return s.failed(ctx, op, err)
	}
	defer tx.Rollback() // after a commit it does nothing
	// A statement takes microseconds, and the driver starts a goroutine for each whose context can end, so the
	// statements get one that cannot. When ctx ends, database/sql rolls the transaction back between two of them.
	if err := f(&transaction{ctx: context.WithoutCancel(ctx), tx: tx, now: s.now().UnixMicro()}); err != nil {
		return s.failed(ctx, op, err)
	}
	if err := tx.Commit(); err != nil {
		return s.failed(ctx, op, err)
	}
	s.wal.bound(ctx)
	return nil
}

// checkFile finds out that the path names another file than the one that is open: what is written now would be lost.
func (s *Store) checkFile() error {
	info, err := os.Stat(s.path)
	if err != nil {
		return err
	}
	if !os.SameFile(info, s.file) {
		return errReplaced
	}
	return nil
}

func (t *transaction) exec(query string, args ...any) (changed int64, err error) {
	result, err := t.tx.ExecContext(t.ctx, query, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

func (t *transaction) query(query string, args ...any) (*sql.Rows, error) {
	return t.tx.QueryContext(t.ctx, query, args...)
}

func (t *transaction) queryRow(query string, args ...any) *sql.Row {
	return t.tx.QueryRowContext(t.ctx, query, args...)
}

// errEnough ends each.
var errEnough = errors.New("enough")

// each calls f for each row, until f returns an error. errEnough is a good end.
func (t *transaction) each(query string, args []any, f func(*sql.Rows) error) error {
	rows, err := t.query(query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := f(rows); errors.Is(err, errEnough) {
			return nil
		} else if err != nil {
			return err
		}
	}
	return rows.Err()
}

// fence returns ErrLeaseLost when the lease is another's, else the number of its last settle. The write lock is held, so nobody
// can take it before the commit.
func (t *transaction) fence(l relay.LeaseID) (settleNumber int64, err error) {
	err = t.queryRow(fenceSQL, l.Destination, l.Owner, l.Epoch).Scan(&settleNumber)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, relay.ErrLeaseLost
	}
	return settleNumber, err
}

// in returns the time that comes after d, in microseconds.
func (t *transaction) in(d time.Duration) int64 { return t.now + d.Microseconds() }

// fenced runs an update of outbox_cursor whose first parameters are destination, owner and epoch. When it finds no row the
// lease is another's.
func (t *transaction) fenced(query string, l relay.LeaseID, args ...any) error {
	changed, err := t.exec(query, append([]any{l.Destination, l.Owner, l.Epoch}, args...)...)
	if err == nil && changed == 0 {
		return relay.ErrLeaseLost
	}
	return err
}
