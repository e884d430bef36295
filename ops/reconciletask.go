package ops

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"time"
)

// ReconcileTask is the name of the reconciliation that runs on a schedule.
const ReconcileTask = "reconcile"

// reconcileKept is how many rows of a finding are kept with the task.
const reconcileKept = 10

// ReconcileState is what the scheduled reconciliation keeps between its runs.
type ReconcileState struct {
	// Report is that of the last run, with a few rows of each finding.
	Report ReconcileReport `json:"report"`
	// LastSuccess is when every check could be made the last time, whatever it found; zero: never.
	LastSuccess time.Time         `json:"last_success,omitzero"`
	Progress    ReconcileProgress `json:"progress"`
}

// ReconcileOn is Reconcile for a Task: it goes on where the last run has ended, and keeps what it finds. What was found stays a
// finding until it is mended. The error says that a check could not be made; findings are no error.
func (o *Ops) ReconcileOn(ctx context.Context, c ReconcileConfig) error {
	var s ReconcileState
	if err := o.changeState(ctx, ReconcileTask, &s, func() {}); err != nil {
		return err
	}
	began := maps.Clone(s.Progress) // s is loaded once more at the end
	if c.Progress = maps.Clone(began); c.Progress == nil {
		c.Progress = ReconcileProgress{}
	}
	report, err := o.Reconcile(ctx, c)
	if err != nil {
		return err
	}
	for i := range report.Findings {
		f := &report.Findings[i]
		f.Rows = f.Rows[:min(len(f.Rows), reconcileKept)]
	}
	if err := o.changeState(ctx, ReconcileTask, &s, func() {
		for name, now := range s.Progress { // a cursor was reset meanwhile: what was compared is no longer
			if !reflect.DeepEqual(now, began[name]) {
				c.Progress[name] = now
			}
		}
		s.Report, s.Progress = report, c.Progress
		if len(report.Errors) == 0 {
			s.LastSuccess = report.At
		}
	}); err != nil {
		return err
	}
	if len(report.Errors) > 0 {
		return fmt.Errorf("reconcile: %d of %d checks could not be made: %v", len(report.Errors), len(report.Checks), report.Errors)
	}
	return nil
}

// forgetComparisons lets the scheduled reconciliation look anew at what a destination is to deliver again, from a number on.
func (o *Ops) forgetComparisons(ctx context.Context, tx *sql.Tx, destination string, seq int64) error {
	var s ReconcileState
	has, err := o.readState(ctx, tx, ReconcileTask, &s)
	switch {
	case errors.Is(err, sql.ErrNoRows), err == nil && !has:
		return nil // it has never run
	case err != nil:
		return err
	}
	for name, reached := range s.Progress {
		if name == "log/"+destination || name == "ledger/"+destination || strings.HasPrefix(name, "inbox/"+destination+"/") {
			s.Progress[name] = reached.before(seq)
		}
	}
	return o.StoreState(ctx, tx, ReconcileTask, s)
}

// changeState loads the state of a task, lets it be changed, and stores it.
func (o *Ops) changeState(ctx context.Context, task string, state any, change func()) error {
	tx, err := o.db.BeginTx(ctx, &sql.TxOptions{Isolation: o.queries.change})
	if err != nil {
		return fmt.Errorf("load the state of task %s: %w", task, err)
	}
	defer tx.Rollback()
	if err := o.LoadState(ctx, tx, task, state); err != nil {
		return err
	}
	change()
	if err := o.StoreState(ctx, tx, task, state); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("store the state of task %s: %w", task, err)
	}
	return nil
}

// LastReconciliation returns what the scheduled reconciliation has found the last time. Its Report.At is zero when it has not
// run.
func (o *Ops) LastReconciliation(ctx context.Context) (ReconcileState, error) {
	var s ReconcileState
	tasks, err := o.Tasks(ctx)
	if err != nil {
		return s, err
	}
	for _, t := range tasks {
		if t.Name != ReconcileTask || len(t.State) == 0 {
			continue
		}
		if err := json.Unmarshal(t.State, &s); err != nil {
			return s, fmt.Errorf("read the state of task %s: %w", ReconcileTask, err)
		}
	}
	return s, nil
}
