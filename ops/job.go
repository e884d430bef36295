package ops

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// JobKind says what a job does to each delivery that its filter matches.
type JobKind string

const (
	// JobRetry sets FAILED and QUARANTINED deliveries going again.
	JobRetry JobKind = "retry"
	// JobDiscard gives FAILED and QUARANTINED deliveries up.
	JobDiscard JobKind = "discard"
	// JobReplay delivers again what was settled: PUBLISHED, DISCARDED, QUARANTINED, and what has no row because the destination
	// keeps no ledger or began later.
	JobReplay JobKind = "replay"
)

// statuses are those that a job of the kind touches.
func (k JobKind) statuses() []relay.Status {
	switch k {
	case JobRetry, JobDiscard:
		return []relay.Status{relay.StatusFailed, relay.StatusQuarantined}
	case JobReplay:
		return []relay.Status{relay.StatusPublished, relay.StatusDiscarded, relay.StatusQuarantined}
	}
	return nil
}

// JobState is where a job stands.
type JobState string

const (
	JobRunning   JobState = "RUNNING"
	JobPaused    JobState = "PAUSED"
	JobDone      JobState = "DONE"
	JobCancelled JobState = "CANCELLED"
	JobFailed    JobState = "FAILED"
)

// Limits on jobs.
const (
	// MaxJobRate is the most deliveries a second that a job touches; DefaultJobRate what it touches when nothing is said.
	MaxJobRate     = 100_000
	DefaultJobRate = 500
	// MaxJobText bounds each text of a filter, in bytes.
	MaxJobText = 1000
)

// JobRequest is what a job is to do.
type JobRequest struct {
	Kind JobKind `json:"kind"`
	// Filter says to which deliveries; its Destination is required.
	Filter Filter `json:"filter"`
	// RatePerSecond is how many deliveries a second are touched at most. Default 500, at most MaxJobRate.
	RatePerSecond int `json:"rate_per_second"`
	// MaxEvents ends the job after so many; 0: no limit.
	MaxEvents int64 `json:"max_events"`
}

// Job is a job over many deliveries. It works in the order of the log, so each key stays in order, and goes on after a restart
// where it was.
type Job struct {
	ID int64 `json:"id"`
	JobRequest
	State     JobState `json:"state"`
	CreatedBy string   `json:"created_by"`
	Reason    string   `json:"reason,omitempty"`
	// FromSeq and ToSeq are the stretch of the log that it goes through, Position how far it has come.
	FromSeq  int64 `json:"from_seq"`
	ToSeq    int64 `json:"to_seq"`
	Position int64 `json:"position"`
	// Affected deliveries were set going or discarded; Skipped ones matched and were under way or had changed.
	Affected   int64      `json:"affected"`
	Skipped    int64      `json:"skipped"`
	LastError  string     `json:"last_error,omitempty"`
	Version    int64      `json:"version"`
	CreatedAt  time.Time  `json:"created_at"`
	UpdatedAt  time.Time  `json:"updated_at"`
	FinishedAt *time.Time `json:"finished_at,omitempty"`
}

// JobPage is a part of the list of jobs, newest first.
type JobPage struct {
	Jobs []Job  `json:"jobs"`
	Next string `json:"next,omitempty"`
}

// JobConflictError says that a job has changed since it was looked at.
type JobConflictError struct{ Now Job }

func (e *JobConflictError) Error() string {
	return "the job has changed since you looked: it is " + string(e.Now.State) + " now"
}

type jobQueries struct {
	get, lock, newest, oldest, add, steer                    string // what operators see and do
	running, take, moved, trouble                            string // how a job gets on
	topics, due, open, log                                   string // what there is to do
	holdEvents, hold, record, setGoing, setGoingNew, discard string // and doing it
}

func (q *jobQueries) files() map[string]*string {
	return map[string]*string{
		"job": &q.get, "job_lock": &q.lock, "jobs_newest": &q.newest, "jobs_oldest": &q.oldest, "job_add": &q.add,
		"job_steer": &q.steer, "job_running": &q.running, "job_take": &q.take, "job_moved": &q.moved, "job_trouble": &q.trouble,
		"job_topics": &q.topics, "job_due": &q.due, "job_open": &q.open, "job_log": &q.log,
		"job_hold_events": &q.holdEvents, "job_hold": &q.hold, "job_record": &q.record, "job_go": &q.setGoing,
		"job_go_new": &q.setGoingNew, "job_discard": &q.discard,
	}
}

// withDefaults fills in what was left out.
func (r JobRequest) withDefaults() JobRequest {
	if r.RatePerSecond == 0 {
		r.RatePerSecond = DefaultJobRate
	}
	return r
}

// problems returns everything that is wrong with a request.
func (r JobRequest) problems() (problems []error) {
	bad := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	f := r.Filter
	allowed := r.Kind.statuses()
	if allowed == nil {
		bad("the kind of job is %q: it can be retry, discard or replay", r.Kind)
	}
	for _, status := range f.Statuses {
		if allowed != nil && !slices.Contains(allowed, status) {
			bad("a %s does not touch what is %s: it can be %v", r.Kind, status, allowed)
		}
	}
	if f.Destination == "" {
		bad("the destination is missing: a job works on one, `pillarbox status` lists them")
	}
	if r.RatePerSecond < 1 || r.RatePerSecond > MaxJobRate {
		bad("the rate is %d per second: it can be 1 to %d", r.RatePerSecond, MaxJobRate)
	}
	if r.MaxEvents < 0 {
		bad("the limit of events is %d: it can be 0 for none, or more", r.MaxEvents)
	}
	problems = append(problems, f.problems()...)
	texts := append([]string{f.Key, f.AggregateType, f.AggregateID, f.EventType, f.ErrorCode, f.Endpoint}, f.Topics...)
	for _, text := range texts {
		if len(text) > MaxJobText {
			bad("a text of the filter has %d bytes: it can have %d", len(text), MaxJobText)
		}
	}
	return problems
}

// scanJob reads a row; more are the columns behind those of the job.
func scanJob(scan func(...any) error, more ...any) (Job, error) {
	var j Job
	var filter string
	var created, updated, finished sql.NullInt64
	columns := []any{&j.ID, &j.Kind, &j.Filter.Destination, &filter, &j.RatePerSecond, &j.MaxEvents, &j.State, &j.CreatedBy,
		&j.Reason, &j.FromSeq, &j.ToSeq, &j.Position, &j.Affected, &j.Skipped, &j.LastError, &j.Version, &created, &updated, &finished}
	if err := scan(append(columns, more...)...); err != nil {
		return Job{}, err
	}
	j.CreatedAt, j.UpdatedAt, j.FinishedAt = *moment(created), *moment(updated), moment(finished)
	if err := json.Unmarshal([]byte(filter), &j.Filter); err != nil {
		return j, &brokenJobError{fmt.Errorf("the filter of job %d cannot be read: %w: start a new job", j.ID, err)}
	}
	return j, nil
}

// brokenJobError is what keeps a job from ever going on.
type brokenJobError struct{ error }

func (e *brokenJobError) Unwrap() error { return e.error }

// Job returns a job. ErrNotFound: there is none of that number.
func (o *Ops) Job(ctx context.Context, id int64) (Job, error) {
	j, err := scanJob(o.db.QueryRowContext(ctx, o.queries.job.get, id).Scan)
	if errors.Is(err, sql.ErrNoRows) {
		err = ErrNotFound
	}
	if err != nil {
		return Job{}, fmt.Errorf("look at job %d: %w", id, err)
	}
	return j, nil
}

// Jobs returns a page of the jobs, the newest first.
func (o *Ops) Jobs(ctx context.Context, p Page) (JobPage, error) {
	if err := refuse(p.problems()); err != nil {
		return JobPage{}, err
	}
	name, err := listName("jobs", nil, p)
	if err != nil {
		return JobPage{}, err
	}
	at, found, err := p.after(name)
	if err != nil {
		return JobPage{}, err
	}
	query, last := o.queries.job.newest, int64(math.MaxInt64)
	if p.OldestFirst {
		query, last = o.queries.job.oldest, 0
	}
	if found {
		last = at.Seq
	}
	page := JobPage{Jobs: []Job{}}
	if err := o.readJobs(ctx, &page, query, last, p.limit()+1); err != nil {
		return JobPage{}, fmt.Errorf("list the jobs: %w", err)
	}
	if n := p.limit(); len(page.Jobs) > n {
		page.Jobs = page.Jobs[:n]
		page.Next = place{Seq: page.Jobs[n-1].ID, List: name}.String()
	}
	return page, nil
}

func (o *Ops) readJobs(ctx context.Context, page *JobPage, query string, after int64, n int) error {
	rows, err := o.db.QueryContext(ctx, query, after, n)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		j, err := scanJob(rows.Scan)
		if broken := (*brokenJobError)(nil); err != nil && !errors.As(err, &broken) {
			return err
		}
		page.Jobs = append(page.Jobs, j)
	}
	return rows.Err()
}
