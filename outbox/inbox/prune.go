package inbox

import (
	"context"
	"fmt"
	"time"

	"github.com/pillarbox-dev/pillarbox/outbox"
	"github.com/pillarbox-dev/pillarbox/outbox/internal/txn"
)

// Prune removes up to limit records, of all consumers, that are older than olderThan by the database's clock, the oldest
// first, and returns how many. What it removes is not recognised any more: see How long in the package's documentation. It does
// the same to the counts of duplicates, by when one came last, and returns the larger number of the two.
//
// It is one small transaction's work, so that it holds nobody up: call it, each time in a transaction of its own, until it
// returns fewer than limit. Several processes may do so at the same time. 1,000 is a good limit.
func (i *Inbox) Prune(ctx context.Context, tx outbox.Tx, olderThan time.Duration, limit int) (int, error) {
	if olderThan < time.Second || limit < 1 {
		return 0, fmt.Errorf("prune the inbox: older than %v, limit %d: choose at least a second, and a limit of at least 1",
			olderThan, limit)
	}
	t, err := txn.Of(tx)
	if err != nil {
		return 0, fmt.Errorf("prune the inbox: %w", err)
	}
	most := 0
	for _, query := range i.prune {
		n, err := txn.Prune(ctx, t, i.dialect, query, int64(olderThan/time.Second), int64(limit))
		if err != nil {
			return 0, fmt.Errorf("prune the inbox: %w%s", err, txn.Hint(err))
		}
		most = max(most, n)
	}
	return most, nil
}
