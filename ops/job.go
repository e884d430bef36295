package ops

import (
	"time"
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

// JobState is where a job stands.
type JobState string

const (
	JobRunning   JobState = "RUNNING"
	JobPaused    JobState = "PAUSED"
	JobDone      JobState = "DONE"
	JobCancelled JobState = "CANCELLED"
	JobFailed    JobState = "FAILED"
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
