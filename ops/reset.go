package ops

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
)

// CursorReset is what ResetCursor did.
type CursorReset struct {
	// From and To are the positions before and after it, Forgotten the rows that left the ledger.
	From      int64 `json:"from"`
	To        int64 `json:"to"`
	Forgotten int64 `json:"forgotten"`
}

const (
	resetChunk  = 10_000
	resetReason = "the cursor is being reset: if that was broken off, run 'pillarbox reset-cursor' again"
	resetBefore = "; it was paused before: " // stands between resetReason and the reason of a pause that is to last
)

var errResetLost = errors.New("somebody else has taken the destination: stop its relays, then do it again")

// resetQueries are the statements of ResetCursor.
type resetQueries struct{ look, hold, renew, forget, cursor string }

// ResetCursor lets a destination begin again at a number of the log, 1 for its beginning: after the log's numbers went back,
// because its table was truncated with RESTART IDENTITY or restored without the cursors. What the ledger says of that number and
// later ones is forgotten, since it may be about other events; all of it is delivered again. Nothing is skipped.
//
// No relay may work on the destination. It is held until the end, so that none begins in between; a reset that is broken off
// leaves it paused, and the next one goes on. What was paused before stays so.
func (o *Ops) ResetCursor(ctx context.Context, destination string, fromSeq int64, a Action) (CursorReset, error) {
	r := CursorReset{To: fromSeq - 1}
	if err := a.check(true); err != nil {
		return r, err
	}
	failed := func(err error) (CursorReset, error) {
		return r, fmt.Errorf("reset the cursor of %s: %w%s", destination, err, rightsHint(err))
	}
	var q resetQueries
	if err := fill(o.dialect, o.schemaName, map[string]*string{
		"reset_look": &q.look, "reset_hold": &q.hold, "reset_renew": &q.renew, "reset_forget": &q.forget, "reset_cursor": &q.cursor,
	}); err != nil {
		return failed(err)
	}
	owner := "reset by " + a.By
	before, err := o.holdForReset(ctx, q, destination, fromSeq, owner, a)
	if err != nil {
		return failed(err)
	}
	r.From = before.position
	for more := true; more; {
		n, err := o.forget(ctx, q, destination, fromSeq, owner)
		if err != nil {
			return failed(err)
		}
		r.Forgotten += n
		more = n == resetChunk
	}
	if err := o.setCursor(ctx, q, destination, fromSeq, owner, r, a); err != nil {
		return failed(err)
	}
	return r, nil
}

// heldCursor is what a destination was like before its reset.
type heldCursor struct {
	position int64 // of the furthest shard
	slowest  int64 // of the other end: what lies above it is not delivered yet
	last     int64
	worker   string
	pause    pauseState
}

// paused is how a pause goes on after the reset: that of a reset which was broken off says what there was before it.
func paused(reason, by string, is bool) pauseState {
	if rest, ofReset := strings.CutPrefix(reason, resetReason); ofReset {
		reason, is = strings.CutPrefix(rest, resetBefore)
	}
	if !is {
		return pauseState{}
	}
	return pauseState{Paused: true, Reason: reason, By: by}
}

// holdForReset makes sure that nobody works on the destination, and that nobody begins to.
func (o *Ops) holdForReset(ctx context.Context, q resetQueries, destination string, fromSeq int64, owner string, a Action) (
	heldCursor, error) {
	tx, err := o.db.BeginTx(ctx, &sql.TxOptions{Isolation: o.queries.change})
	if err != nil {
		return heldCursor{}, err
	}
	defer tx.Rollback()
	var c heldCursor
	shards := 0
	if err := each(ctx, tx, q.look, []any{destination}, func(scan func(...any) error) error {
		var position int64
		var worker, reason, by string
		var isPaused bool
		if err := scan(&position, &worker, &reason, &by, &isPaused, &c.last); err != nil {
			return err
		}
		if shards == 0 || position < c.slowest {
			c.slowest = position
		}
		c.position = max(c.position, position)
		c.worker = cmp.Or(worker, c.worker)
		if !c.pause.Paused { // the guard pauses one shard alone
			c.pause = paused(reason, by, isPaused)
		}
		shards++
		return nil
	}); err != nil {
		return c, err
	}
	switch end := min(c.slowest, c.last) + 1; {
	case shards == 0:
		return c, ErrUnknownDestination
	case c.worker != "" && c.worker != owner:
		return c, refuseWorker(c.worker)
	case fromSeq < 1 || fromSeq > end:
		return c, &RefusedError{fmt.Sprintf("it can begin again at 1 to %d: beyond that events would be skipped", end)}
	}
	reason, by := resetReason, a.By
	if c.pause.Paused {
		reason, by = resetReason+resetBefore+c.pause.Reason, c.pause.By
	}
	if _, err := tx.ExecContext(ctx, q.hold, destination, owner, reason, by); err != nil {
		return c, err
	}
	return c, tx.Commit()
}

// refuseWorker is for what cannot be done to a destination while a relay works on it.
func refuseWorker(relay string) error {
	return &RefusedError{"the relay " + relay + " works on it: stop the relays first, or wait until its lease has ended"}
}

// forget takes a chunk out of the ledger, and keeps the lease.
func (o *Ops) forget(ctx context.Context, q resetQueries, destination string, fromSeq int64, owner string) (int64, error) {
	tx, err := o.db.BeginTx(ctx, &sql.TxOptions{Isolation: o.queries.change})
	if err != nil {
		return 0, err
	}
	defer tx.Rollback()
	if err := o.mustHold(ctx, tx, q.renew, destination, owner); err != nil {
		return 0, err
	}
	result, err := tx.ExecContext(ctx, q.forget, destination, fromSeq, resetChunk)
	if err != nil {
		return 0, err
	}
	n, err := result.RowsAffected()
	if err != nil {
		return 0, err
	}
	return n, tx.Commit()
}

func (o *Ops) setCursor(ctx context.Context, q resetQueries, destination string, fromSeq int64, owner string,
	r CursorReset, a Action) error {
	tx, err := o.db.BeginTx(ctx, &sql.TxOptions{Isolation: o.queries.change})
	if err != nil {
		return err
	}
	defer tx.Rollback()
	var is bool
	var reason, by string
	if err := tx.QueryRowContext(ctx, o.queries.paused, destination).Scan(&reason, &by, &is); errors.Is(err, sql.ErrNoRows) {
		return errResetLost
	} else if err != nil {
		return err
	}
	p := paused(reason, by, is) // as it is by now: somebody may have paused the destination meanwhile
	if err := o.mustHold(ctx, tx, q.cursor, destination, owner, fromSeq, p.Paused, p.Reason, p.By); err != nil {
		return err
	}
	if err := o.forgetComparisons(ctx, tx, destination, fromSeq); err != nil {
		return err
	}
	if err := o.record(ctx, tx, "reset-cursor", destination, a, map[string]int64{"position": r.From}, r); err != nil {
		return err
	}
	return tx.Commit()
}

// mustHold runs an update of the cursor that finds nothing when the lease is another's.
func (o *Ops) mustHold(ctx context.Context, tx *sql.Tx, update string, args ...any) error {
	result, err := tx.ExecContext(ctx, update, args...)
	if err != nil {
		return err
	}
	n, err := result.RowsAffected()
	if err == nil && n == 0 {
		err = errResetLost
	}
	return err
}
