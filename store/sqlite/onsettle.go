package sqlite

import (
	"context"
	"database/sql"
	"fmt"

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
// It must be quick, because it holds the write lock of the whole database, and the destination waits for it. It uses tx alone
// (another connection would wait for that lock) and neither commits nor rolls back. An error rolls the whole settle back; it is
// tried again until the lease is over, and then by the next owner, so a hook that always fails holds its destination up.
//
// It is not told what changes without a settle: what a takeover finds in flight (Recover) and what is taken up again (Claim)
// changes PUBLISHING, FAILED and PENDING among each other, an operator's commands write for themselves, and with
// relay.DestinationConfig.NoLedger most successes are never written.
type OnSettle func(ctx context.Context, tx *sql.Tx, destination string, s relay.Settlement) error

// hookError is what OnSettle returned.
type hookError struct{ err error }

func (e *hookError) Error() string { return fmt.Sprintf("OnSettle: %v", e.err) }
func (e *hookError) Unwrap() error { return e.err }

func (s *Store) callHook(ctx context.Context, tx *transaction, destination string, settlement relay.Settlement) error {
	if s.onSettle == nil || len(settlement.Published)+len(settlement.Rows) == 0 {
		return nil
	}
	if err := s.onSettle(ctx, tx.tx, destination, settlement); err != nil {
		return &hookError{err}
	}
	return nil
}
