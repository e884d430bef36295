package ops

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// inboxRecent is among how many of the newest rows of an inbox a consumer's own newest one is looked for.
const inboxRecent = 1_000

// Inbox is how far a consumer has come, by its inbox.
type Inbox struct {
	// Handled is how many events are in it, counted up to 10,000. What the consumer has pruned is not.
	Handled Count `json:"handled"`
	// Duplicates is how often events came again that it had handled. At most 10,000 such events are looked at.
	Duplicates Count `json:"duplicates"`
	// Last is when it handled the newest one; nil: not lately, or never.
	Last *time.Time `json:"last_handled_at,omitempty"`
}

// Inbox looks at the inbox of one consumer in this database, which may be another one than the outbox's.
func (o *Ops) Inbox(ctx context.Context, consumer string) (Inbox, error) {
	inbox, err := o.inbox(ctx, consumer)
	if err != nil {
		return Inbox{}, fmt.Errorf("look at the inbox of %s: %w", consumer, err)
	}
	return inbox, nil
}

func (o *Ops) inbox(ctx context.Context, consumer string) (Inbox, error) {
	var query string
	if err := fill(o.dialect, o.schemaName, map[string]*string{"inbox": &query}); err != nil {
		return Inbox{}, err
	}
	tx, err := o.look(ctx, o.queries.plan)
	if err != nil {
		return Inbox{}, err
	}
	defer tx.Rollback()
	var n, repeated, times int64
	var last sql.NullInt64
	err = tx.QueryRowContext(ctx, query, consumer, countLimit+1, inboxRecent).Scan(&n, &last, &repeated, &times)
	return Inbox{
		Handled:    Count{N: min(n, countLimit), AtLeast: n > countLimit},
		Duplicates: Count{N: times, AtLeast: repeated > countLimit},
		Last:       moment(last),
	}, err
}
