package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// OnSettle lets a service keep its own rows in step with what became of its events: a row that says SENT is written in the
// transaction that says PUBLISHED, so no crash comes between the two.
//
// It is called for settlements with deliveries, Published and Rows, and once for each that is committed: a settle that is
// repeated because its answer was lost does not call it again, one that is rolled back (the lease was lost, the commit failed)
// leaves nothing of it. So it need not be idempotent. It gets numbers: the event is found by outbox_event.seq, or the
// service's row by a seq of its own. Of Rows it should care for the statuses it knows; PENDING and PUBLISHING say that nothing
// has happened yet.
//
// It must be quick, because the destination waits for it, and the lease is held meanwhile. It uses tx alone, and neither commits
// nor rolls back. The connection has the settings of this package: its statements need an index to walk. An error rolls the
// whole settle back; it is tried again until the lease is over, and then by the next owner, so a hook that always fails holds
// its destination up.
//
// It is not told what changes without a settle: what a takeover finds in flight (Recover) and what is taken up again (Claim)
// changes PUBLISHING, FAILED and PENDING among each other, an operator's commands write for themselves, and with
// relay.DestinationConfig.NoLedger most successes are never written.
type OnSettle func(ctx context.Context, tx pgx.Tx, destination string, s relay.Settlement) error

// hookError is what OnSettle returned. It is told from the store's own errors: its missing row is no lost lease.
type hookError struct{ err error }

func (e *hookError) Error() string { return fmt.Sprintf("OnSettle: %v", e.err) }
func (e *hookError) Unwrap() error { return e.err }

// settleWithHook is a settle with the hook in its transaction. It writes over what is there: a duplicate would abort the
// transaction, and COPY ends it.
func (s *Store) settleWithHook(
	ctx context.Context, l relay.LeaseID, st relay.Settlement, texts settleStatements, args []any,
) (m moved, err error) {
	err = pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		if err := m.scan(tx.QueryRow(ctx, texts.rows, append(args, rowArgs(allRows(st))...)...)); err != nil {
			return err
		}
		if err := s.onSettle(ctx, tx, l.Destination, st); err != nil {
			return &hookError{err}
		}
		return nil
	})
	return m, err
}
