package ops

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// StartJob writes a job down; a running `pillarbox run`, or RunJobs, does the work. The end of the log at this moment is the end
// of its stretch. The reason is required. Everything that is wrong with the request is in the error.
func (o *Ops) StartJob(ctx context.Context, r JobRequest, a Action) (Job, error) {
	r = r.withDefaults()
	problems := r.problems()
	if err := a.check(true); err != nil {
		problems = append(problems, err)
	}
	if err := refuse(problems); err != nil {
		return Job{}, err
	}
	failed := func(err error) (Job, error) {
		return Job{}, fmt.Errorf("start a %s for %s: %w%s", r.Kind, r.Filter.Destination, err, rightsHint(err))
	}
	tx, err := o.beginJob(ctx, false)
	if err != nil {
		return failed(err)
	}
	defer tx.Rollback() // after a commit it does nothing
	if _, err := o.wantedTopics(ctx, tx, r.Filter.Destination); err != nil {
		return failed(err)
	}
	j := Job{JobRequest: r}
	if err := o.span(ctx, tx, &j); err != nil {
		return failed(err)
	}
	if j.FromSeq > j.ToSeq {
		return failed(&RefusedError{Why: "no event of the log lies within its bounds: there is nothing to do"})
	}
	filter, err := json.Marshal(r.Filter)
	if err != nil {
		return failed(err)
	}
	j, err = scanJob(tx.QueryRowContext(ctx, o.queries.job.add, r.Kind, r.Filter.Destination, string(filter), r.RatePerSecond,
		r.MaxEvents, a.By, a.Reason, j.FromSeq, j.ToSeq).Scan)
	if err != nil {
		return failed(err)
	}
	is := jobRecord{ID: j.ID, State: j.State, JobRequest: &r}
	if err := o.record(ctx, tx, "job", r.Filter.Destination, a, nil, is); err != nil {
		return failed(err)
	}
	if err := tx.Commit(); err != nil {
		return failed(err)
	}
	return j, nil
}

// jobRecord is what the operators' log says of a job.
type jobRecord struct {
	ID    int64    `json:"job"`
	State JobState `json:"state"`
	*JobRequest
}

// beginJob begins a transaction whose statements go by the indexes.
func (o *Ops) beginJob(ctx context.Context, readOnly bool) (*sql.Tx, error) {
	tx, err := o.db.BeginTx(ctx, &sql.TxOptions{Isolation: o.queries.change, ReadOnly: readOnly})
	if err != nil || o.queries.plan == "" {
		return tx, err
	}
	if _, err := tx.ExecContext(ctx, o.queries.plan); err != nil {
		return nil, errors.Join(err, tx.Rollback())
	}
	return tx, nil
}

// span finds the stretch of the log that a job goes through.
func (o *Ops) span(ctx context.Context, q querier, j *Job) error {
	f := j.Filter
	first, last, err := o.createdBetween(ctx, q, f.Since, f.Until)
	if err != nil {
		return err
	}
	j.FromSeq, j.ToSeq = max(first, f.FromSeq), last
	if f.ToSeq > 0 {
		j.ToSeq = min(last, f.ToSeq)
	}
	return nil
}

// PauseJob lets a running job rest until ResumeJob. What it has set going already is delivered. version is the Job.Version that
// the operator saw; when the job has changed since, the error is a *JobConflictError.
func (o *Ops) PauseJob(ctx context.Context, id, version int64, a Action) (Job, error) {
	return o.steer(ctx, "pause job", id, version, a, JobPaused, JobRunning)
}

// ResumeJob lets a job go on that was paused or has failed, from where it is.
func (o *Ops) ResumeJob(ctx context.Context, id, version int64, a Action) (Job, error) {
	return o.steer(ctx, "resume job", id, version, a, JobRunning, JobPaused, JobFailed)
}

// CancelJob ends a job for good. What it has done already stays as it is.
func (o *Ops) CancelJob(ctx context.Context, id, version int64, a Action) (Job, error) {
	return o.steer(ctx, "cancel job", id, version, a, JobCancelled, JobRunning, JobPaused, JobFailed)
}

// steer brings a job from one of some states to another, and records who did it.
func (o *Ops) steer(ctx context.Context, action string, id, version int64, a Action, to JobState, from ...JobState) (Job, error) {
	if err := a.check(false); err != nil {
		return Job{}, err
	}
	failed := func(err error) (Job, error) {
		return Job{}, fmt.Errorf("%s %d: %w%s", action, id, err, rightsHint(err))
	}
	tx, err := o.db.BeginTx(ctx, &sql.TxOptions{Isolation: o.queries.change})
	if err != nil {
		return failed(err)
	}
	defer tx.Rollback() // after a commit it does nothing
	was, err := scanJob(tx.QueryRowContext(ctx, o.queries.job.lock, id).Scan)
	broken := (*brokenJobError)(nil)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return failed(ErrNotFound)
	case err != nil && !errors.As(err, &broken):
		return failed(err)
	case was.Version != version:
		return failed(&JobConflictError{Now: was})
	case !slices.Contains(from, was.State):
		return failed(&RefusedError{Why: fmt.Sprintf("it is %s: only what is %v can become %s", was.State, from, to)})
	}
	is, err := scanJob(tx.QueryRowContext(ctx, o.queries.job.steer, id, to).Scan)
	if err != nil && !errors.As(err, &broken) {
		return failed(err)
	}
	if err := o.record(ctx, tx, action, is.Filter.Destination, a,
		jobRecord{ID: id, State: was.State}, jobRecord{ID: id, State: is.State}); err != nil {
		return failed(err)
	}
	if err := tx.Commit(); err != nil {
		return failed(err)
	}
	return is, nil
}
