package ops

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// createdApart is how far the order of created_at may be from that of the numbers: two producers' clock readings lie between
// their numbers, and a clock is set back by a moment now and then.
const createdApart = time.Minute

type seqAtQueries struct{ at, last string }

func (q *seqAtQueries) files() map[string]*string {
	return map[string]*string{"seq_at": &q.at, "last_seq": &q.last}
}

// querier is a pool or a transaction.
type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// createdBetween returns the stretch of the log that holds what was created from since on and before until; a zero time is no
// bound. There is no index over created_at: the numbers are bisected, which costs some 30 looks into the primary key. The
// stretch is a little too long at both ends (createdApart), so each row's time has to be looked at as well. Events that were
// given a created_at of their own, out of the order of the log, may be missed.
func (o *Ops) createdBetween(ctx context.Context, q querier, since, until time.Time) (first, last int64, err error) {
	if err = q.QueryRowContext(ctx, o.queries.seqAt.last).Scan(&last); err != nil {
		return 0, 0, fmt.Errorf("read the last number of the log: %w", err)
	}
	first = 1
	if !since.IsZero() {
		if first, err = o.createdFrom(ctx, q, since.Add(-createdApart), last); err != nil {
			return 0, 0, err
		}
	}
	if !until.IsZero() {
		end, err := o.createdFrom(ctx, q, until.Add(createdApart), last)
		if err != nil {
			return 0, 0, err
		}
		last = end - 1
	}
	return first, last, nil
}

// createdFrom returns the first number whose event was created at t or later, if created_at rises with the numbers; last + 1
// when all are older.
func (o *Ops) createdFrom(ctx context.Context, q querier, t time.Time, last int64) (int64, error) {
	low, high := int64(1), last+1 // it is one of low … high
	for low < high {
		middle := low + (high-low)/2
		var seq, created int64
		err := q.QueryRowContext(ctx, o.queries.seqAt.at, middle).Scan(&seq, &created)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			high = middle // the end of the log was deleted meanwhile
		case err != nil:
			return 0, fmt.Errorf("look for the first event since %s: %w", t.UTC().Format(time.RFC3339), err)
		case created >= t.UnixMicro():
			high = middle // there is no event between middle and seq
		default:
			low = seq + 1
		}
	}
	return low, nil
}
