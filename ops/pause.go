package ops

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
)

var (
	// ErrUnknownDestination says that no relay has ever worked on a destination of that name.
	ErrUnknownDestination = errors.New("no relay has worked on this destination yet: check its name with `pillarbox status`")
	// ErrNotPaused says that there is nothing to resume.
	ErrNotPaused = errors.New("it is not paused")
)

// Limits on what an operator says.
const (
	MaxReason   = 2000 // bytes
	MaxOperator = 200  // bytes
)

// Action says who does something, and why. Both are recorded.
type Action struct {
	By     string // required
	Reason string // required for Pause
}

func (a Action) check(needReason bool) error {
	var problems []error
	if a.By == "" {
		problems = append(problems, errors.New("nobody is named who does it: say who you are"))
	}
	if needReason && a.Reason == "" {
		problems = append(problems, errors.New("the reason is missing: say why, for the next one who looks"))
	}
	if len(a.By) > MaxOperator || len(a.Reason) > MaxReason {
		problems = append(problems, fmt.Errorf("a name may have %d bytes and a reason %d: shorten them", MaxOperator, MaxReason))
	}
	return errors.Join(problems...)
}

// Pause stops deliveries to a destination until Resume, whichever relay works on it and over restarts. A running relay heeds it
// at its next renewal, within a third of its lease; what is under way is finished. Pausing again replaces the reason.
func (o *Ops) Pause(ctx context.Context, destination string, a Action) error {
	if err := a.check(true); err != nil {
		return err
	}
	return o.setPause(ctx, "pause", destination, a, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, o.queries.pause, destination, a.Reason, a.By)
		return err
	})
}

// Resume lets a paused destination go on, whoever paused it. It returns ErrNotPaused when it is not.
func (o *Ops) Resume(ctx context.Context, destination string, a Action) error {
	if err := a.check(false); err != nil {
		return err
	}
	return o.setPause(ctx, "resume", destination, a, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, o.queries.resume, destination)
		return err
	})
}

// pauseState is what the record says about before and after.
type pauseState struct {
	Paused bool   `json:"paused"`
	Reason string `json:"reason,omitempty"`
	By     string `json:"by,omitempty"`
}

// setPause changes the pause and records who did it, in one transaction.
func (o *Ops) setPause(ctx context.Context, action, destination string, a Action,
	change func(context.Context, *sql.Tx) error) error {
	failed := func(err error) error { return fmt.Errorf("%s %s: %w", action, destination, err) }
	tx, err := o.db.BeginTx(ctx, nil)
	if err != nil {
		return failed(err)
	}
	defer tx.Rollback() // after a commit it does nothing
	var before pauseState
	err = tx.QueryRowContext(ctx, o.queries.paused, destination).Scan(&before.Reason, &before.By, &before.Paused)
	if errors.Is(err, sql.ErrNoRows) {
		err = ErrUnknownDestination
	}
	if err == nil && action == "resume" && !before.Paused {
		err = ErrNotPaused
	}
	if err != nil {
		return failed(err)
	}
	after := pauseState{}
	if action == "pause" {
		after = pauseState{Paused: true, Reason: a.Reason, By: a.By}
	}
	if err := change(ctx, tx); err != nil {
		return failed(err)
	}
	if err := o.record(ctx, tx, action, destination, a, before, after); err != nil {
		return failed(err)
	}
	if err := tx.Commit(); err != nil {
		return failed(err)
	}
	return nil
}

// record adds a line to outbox_operator_action.
func (o *Ops) record(ctx context.Context, tx *sql.Tx, action, destination string, a Action, before, after any) error {
	was, err := json.Marshal(before)
	if err != nil {
		return err
	}
	is, err := json.Marshal(after)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, o.queries.record, a.By, action, destination, a.Reason, string(was), string(is))
	if err != nil {
		return fmt.Errorf("write outbox_operator_action: %w", err)
	}
	return nil
}
