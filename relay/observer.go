package relay

import "time"

// An Observer is told what happens, for metrics, logs and traces. Its methods are called on the relay's own goroutines:
// they must be quick and must not call back. Embed Unobserved to implement some of them.
type Observer interface {
	// Read: a page of the log was read.
	Read(destination string, events int, took time.Duration)
	// Attempted: a call of Deliver came back.
	Attempted(destination string, attempts []Attempt)
	// Settled: outcomes were written down.
	Settled(destination string, s SettleReport)
	// Noticed: something that happens seldom.
	Noticed(destination string, n Notice)
}

// Attempt is one try to deliver and what came of it.
type Attempt struct {
	Delivery Delivery
	Outcome  Outcome
	// Decision is the status that the delivery gets.
	Decision Status
	// Code is what is recorded: the outcome's code, or the relay's own (EXHAUSTED). "" when published.
	Code string
	// Took is how long the call of Deliver took.
	Took time.Duration
	// Age is the time from created_at, by the database's clock, to the end of the attempt.
	Age time.Duration
	// NextIn is the time until the next attempt, for FAILED.
	NextIn time.Duration
}

// SettleReport is one settle.
type SettleReport struct {
	Took        time.Duration
	Published   int
	Quarantined int
	// Latencies are the times from the read to this settle, of what was published by it. Valid during the call.
	Latencies []time.Duration
}

// NoticeKind names a Notice.
type NoticeKind string

const (
	NoticeLeaseTaken        NoticeKind = "lease_taken"
	NoticeLeaseLost         NoticeKind = "lease_lost"
	NoticeLeaseReleased     NoticeKind = "lease_released"
	NoticePossibleDuplicate NoticeKind = "possible_duplicate" // Count: what may have been sent before
	NoticeBreakerOpen       NoticeKind = "breaker_open"
	NoticeBreakerClosed     NoticeKind = "breaker_closed"
	NoticeGuard             NoticeKind = "guard" // nearly everything was rejected
	NoticeIsolating         NoticeKind = "isolating"
	NoticeStoreError        NoticeKind = "store_error"
	NoticeGapDead           NoticeKind = "gap_dead"   // Count: numbers that were rolled back
	NoticeGapFilled         NoticeKind = "gap_filled" // Count: late commits
	NoticeParked            NoticeKind = "parked"     // Count: deliveries put aside
	NoticePublishing        NoticeKind = "publishing" // Count: slow ones that got a row of their own
)

// Notice is something that happens seldom.
type Notice struct {
	Kind     NoticeKind
	Endpoint string
	Code     string
	Count    int
	Err      error
}

// Unobserved is an Observer that does nothing.
type Unobserved struct{}

func (Unobserved) Read(string, int, time.Duration) {}
func (Unobserved) Attempted(string, []Attempt)     {}
func (Unobserved) Settled(string, SettleReport)    {}
func (Unobserved) Noticed(string, Notice)          {}
