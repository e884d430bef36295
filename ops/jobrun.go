package ops

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/pillarbox-dev/pillarbox/relay"
)

const (
	jobTick   = 250 * time.Millisecond // between looks at running jobs
	jobIdle   = time.Second            // and when there is none
	jobRest   = time.Minute            // and when this process lacks the rights
	jobMakeUp = 500 * time.Millisecond // see makeUp
	// What is due and not taken up yet is at most two seconds' worth, or so many when that is less.
	jobMinDue = 1_000
)

// RunJobs works on all running jobs until the context ends.
//
// A chunk of a job is one transaction: it locks the job's row, changes the next deliveries, records each in the operators' log,
// and moves the job's position. So whatever ends the process, nothing is repeated and nothing is forgotten; a job that is
// paused or cancelled stops before its next chunk; and one process at a time works on a job, since the others pass over a row
// that is locked. The row also says up to when the rate has been used, so that it holds however many processes there are.
func (o *Ops) RunJobs(ctx context.Context, log *slog.Logger) {
	r := &jobRunner{Ops: o, log: log, rests: map[int64]rest{}}
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-time.After(r.turn(ctx)):
		}
	}
}

// jobRunner is one process's work on jobs.
type jobRunner struct {
	*Ops
	log   *slog.Logger
	rests map[int64]rest
	told  string // what kept it from looking, as logged last
}

// rest keeps a job that meets errors from meeting them too often.
type rest struct {
	until time.Time
	fails int
}

// turn gives each running job its share. It returns when to look again.
func (r *jobRunner) turn(ctx context.Context) time.Duration {
	ids, err := r.running(ctx)
	if ctx.Err() != nil {
		return 0
	}
	if err != nil {
		if text := err.Error(); text != r.told {
			r.told = text
			r.log.Warn("jobs cannot be worked on by this process", "error", err)
		}
		if lacksRights(err) {
			return jobRest
		}
		return taskPoll
	}
	r.told = ""
	if len(ids) == 0 {
		return jobIdle
	}
	began := time.Now()
	for _, id := range ids {
		if resting := r.rests[id]; time.Now().Before(resting.until) {
			continue
		}
		r.work(ctx, id)
	}
	return max(jobTick-time.Since(began), time.Millisecond)
}

func (r *jobRunner) running(ctx context.Context) ([]int64, error) {
	ids, err := numbers(ctx, r.db, r.queries.job.running)
	if err != nil {
		return nil, fmt.Errorf("look for running jobs: %w%s", err, rightsHint(err))
	}
	return ids, nil
}

// work does what a job may do by now, in chunks, and not for longer than others should wait.
func (r *jobRunner) work(ctx context.Context, id int64) {
	for began := time.Now(); ctx.Err() == nil && time.Since(began) < jobTick; {
		start := time.Now()
		again, err := r.chunk(ctx, id)
		if err != nil && ctx.Err() == nil {
			r.failed(ctx, id, err)
			return
		}
		delete(r.rests, id)
		if !r.isPostgres() {
			r.giveWay(ctx, time.Since(start))
		}
		if !again {
			return
		}
	}
}

// giveWay rests as long as a chunk took. SQLite has one write lock and no queue for it: who takes it again at once keeps the
// others from it, be they the relay, a producer, or the operator who wants to pause the job.
func (r *jobRunner) giveWay(ctx context.Context, took time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(min(took, jobIdle)):
	}
}

// failed notes an error where operators see it, and lets the job rest for a while, or end when nothing will mend it.
func (r *jobRunner) failed(ctx context.Context, id int64, err error) {
	resting := r.rests[id]
	resting.fails++
	resting.until = time.Now().Add(min(jobRest, time.Second<<min(resting.fails-1, 10)))
	r.rests[id] = resting
	r.log.Warn("a job cannot go on", "job", id, "error", err)
	text := shortened(err.Error(), MaxTaskError)
	var broken *brokenJobError
	if !errors.As(err, &broken) {
		if _, e := r.db.ExecContext(ctx, r.queries.job.trouble, id, text); e != nil {
			r.log.Warn("what keeps a job from going on was not written down", "job", id, "error", e)
		}
		return
	}
	tx, e := r.beginJob(ctx, false)
	if e == nil {
		defer tx.Rollback() // after a commit it does nothing
		var j Job
		if j, _, e = r.take(ctx, tx, id); e == nil || errors.As(e, &broken) {
			_, e = tx.ExecContext(ctx, r.queries.job.moved, id, j.Position, 0, 0, 0, 0, JobFailed, text)
		}
	}
	if e == nil {
		e = tx.Commit()
	}
	if e != nil {
		r.log.Warn("that a job has failed was not written down", "job", id, "error", e)
	}
}

// take locks a job that is running; unused is for how long its rate has not been used. sql.ErrNoRows: it does not run any more, or
// another process has it.
func (r *jobRunner) take(ctx context.Context, tx *sql.Tx, id int64) (j Job, unused time.Duration, err error) {
	var micros int64
	j, err = scanJob(tx.QueryRowContext(ctx, r.queries.job.take, id).Scan, &micros)
	return j, time.Duration(micros) * time.Microsecond, err
}

// chunk is one transaction of a job. again says that there may be more to do at once.
func (r *jobRunner) chunk(ctx context.Context, id int64) (again bool, err error) {
	tx, err := r.beginJob(ctx, false)
	if err != nil {
		return false, err
	}
	defer tx.Rollback() // after a commit it does nothing
	j, unused, err := r.take(ctx, tx, id)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	c := &jobStep{Ops: r.Ops, tx: tx, Job: j}
	if err := c.run(ctx, unused); err != nil {
		return false, fmt.Errorf("job %d: %w", id, err)
	}
	if err := tx.Commit(); err != nil {
		return false, fmt.Errorf("job %d: %w", id, err)
	}
	return c.again, nil
}

// jobStep is what one transaction does of a job.
type jobStep struct {
	*Ops
	Job
	tx    *sql.Tx
	again bool
}

func (s *jobStep) run(ctx context.Context, unused time.Duration) error {
	topics, err := s.wantedTopics(ctx, s.tx, s.Filter.Destination)
	if errors.Is(err, ErrUnknownDestination) {
		return &brokenJobError{fmt.Errorf("%s: %w", s.Filter.Destination, err)}
	}
	if err != nil {
		return err
	}
	room := s.room(unused)
	if room == 0 {
		return nil
	}
	room, waits, err := s.heed(ctx, room)
	if err != nil {
		return err
	}
	if room == 0 {
		_, err := s.tx.ExecContext(ctx, s.queries.job.trouble, s.ID, waits)
		return err
	}
	seen, err := s.candidates(ctx, s.tx, &s.Job, s.Position)
	if err != nil {
		return err
	}
	return s.settle(ctx, s.choose(seen, room, topics))
}

// room is how many deliveries the rate and the job's limit allow now.
func (s *jobStep) room(unused time.Duration) int64 {
	room := int64(min(unused, s.makeUp()).Seconds() * float64(s.RatePerSecond))
	if s.MaxEvents > 0 {
		room = min(room, s.MaxEvents-s.Affected)
	}
	if !s.isPostgres() {
		room = min(room, jobSmall) // nobody else can write meanwhile
	}
	return min(max(room, 0), jobChunk)
}

// makeUp is for how long a rate that was not used is made up for: for one delivery at least.
func (s *jobStep) makeUp() time.Duration {
	return max(jobMakeUp, time.Second/time.Duration(s.RatePerSecond))
}

// heed makes the room smaller while the relay does not keep up. When there is none left it says what the job waits for.
func (s *jobStep) heed(ctx context.Context, room int64) (int64, string, error) {
	if s.Kind == JobDiscard {
		return room, "", nil
	}
	limit := max(jobMinDue, 2*int64(s.RatePerSecond))
	var due int64
	if err := s.tx.QueryRowContext(ctx, s.queries.job.due, s.Filter.Destination, limit).Scan(&due); err != nil {
		return 0, "", fmt.Errorf("count what is due for %s: %w", s.Filter.Destination, err)
	}
	if due < limit {
		return min(room, limit-due), "", nil
	}
	return 0, fmt.Sprintf("it waits: %d deliveries to %s are due and no relay has taken them up yet: see with `pillarbox status` "+
		"that one runs and that the destination is neither paused nor failing", due, s.Filter.Destination), nil
}

// settle does to the chosen deliveries what the job is for, and moves the job on.
func (s *jobStep) settle(ctx context.Context, c chosen) error {
	affected, err := s.apply(ctx, c)
	if err != nil {
		return err
	}
	state := JobRunning
	if c.position >= s.ToSeq || s.MaxEvents > 0 && s.Affected+affected >= s.MaxEvents {
		state = JobDone
	}
	used := time.Duration(c.count()) * time.Second / time.Duration(s.RatePerSecond)
	_, err = s.tx.ExecContext(ctx, s.queries.job.moved, s.ID, c.position, affected, c.skipped+c.count()-affected,
		used.Microseconds(), s.makeUp().Microseconds(), state, "")
	if err != nil {
		return fmt.Errorf("move the job's position: %w", err)
	}
	s.again = state == JobRunning
	return nil
}

// apply returns how many deliveries were changed: those that still could be.
func (s *jobStep) apply(ctx context.Context, c chosen) (int64, error) {
	rows, fresh := c.rows, c.fresh
	if s.Kind == JobReplay {
		var err error
		if rows, err = s.held(ctx, rows); err != nil {
			return 0, err
		}
		if fresh, err = s.held(ctx, fresh); err != nil {
			return 0, err
		}
	}
	rows, err := s.hold(ctx, rows)
	if err != nil {
		return 0, err
	}
	if err := s.change(ctx, rows); err != nil {
		return 0, err
	}
	fresh, err = s.begin(ctx, fresh)
	if err != nil {
		return 0, err
	}
	return int64(len(rows) + len(fresh)), nil
}

// held returns those whose event is there, and keeps it from being deleted.
func (s *jobStep) held(ctx context.Context, seqs []int64) ([]int64, error) {
	if len(seqs) == 0 {
		return nil, nil
	}
	held, err := numbers(ctx, s.tx, s.queries.job.holdEvents, jsonList(seqs))
	if err != nil {
		return nil, fmt.Errorf("hold the events: %w", err)
	}
	return held, nil
}

// hold returns those that still fit, and keeps the relay and operators from them until the end of the transaction.
func (s *jobStep) hold(ctx context.Context, seqs []int64) ([]int64, error) {
	if len(seqs) == 0 {
		return nil, nil
	}
	statuses := s.Filter.Statuses
	if len(statuses) == 0 {
		statuses = s.Kind.statuses()
	}
	held, err := numbers(ctx, s.tx, s.queries.job.hold, s.Filter.Destination, jsonList(seqs), jsonList(statuses),
		s.Filter.ErrorCode, s.Filter.Endpoint)
	if err != nil {
		return nil, fmt.Errorf("hold the deliveries: %w", err)
	}
	return held, nil
}

// change sets rows going, or gives them up.
func (s *jobStep) change(ctx context.Context, seqs []int64) error {
	if len(seqs) == 0 {
		return nil
	}
	query, status := s.queries.job.setGoing, relay.StatusPending
	args := []any{s.Filter.Destination, jsonList(seqs)}
	if s.Kind == JobDiscard {
		query, status = s.queries.job.discard, relay.StatusDiscarded
	} else {
		args = append(args, s.Kind == JobReplay)
	}
	if err := s.write(ctx, seqs, status, false); err != nil {
		return err
	}
	if _, err := s.tx.ExecContext(ctx, query, args...); err != nil {
		return fmt.Errorf("change the deliveries: %w", err)
	}
	return nil
}

// begin gives events a row that have none, and returns those.
func (s *jobStep) begin(ctx context.Context, seqs []int64) ([]int64, error) {
	if len(seqs) == 0 {
		return nil, nil
	}
	begun, err := numbers(ctx, s.tx, s.queries.job.setGoingNew, s.Filter.Destination, jsonList(seqs))
	if err != nil {
		return nil, fmt.Errorf("add the deliveries: %w", err)
	}
	if len(begun) == 0 {
		return nil, nil
	}
	return begun, s.write(ctx, begun, relay.StatusPending, true)
}

// write adds a line to the operators' log for each delivery.
func (s *jobStep) write(ctx context.Context, seqs []int64, status relay.Status, fresh bool) error {
	reason := shortened(fmt.Sprintf("job %d: %s", s.ID, s.Reason), MaxReason)
	if _, err := s.tx.ExecContext(ctx, s.queries.job.record, s.Filter.Destination, jsonList(seqs), s.CreatedBy, s.Kind, reason,
		status, fresh); err != nil {
		return fmt.Errorf("write outbox_operator_action: %w", err)
	}
	return nil
}

// numbers runs a query that returns one column of numbers.
func numbers(ctx context.Context, q querier, query string, args ...any) ([]int64, error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []int64
	for rows.Next() {
		var n int64
		if err := rows.Scan(&n); err != nil {
			return nil, err
		}
		all = append(all, n)
	}
	return all, rows.Err()
}
