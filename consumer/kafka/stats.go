package kafka

import (
	"sync/atomic"
	"time"
)

// Kind says what an attempt came to.
type Kind string

const (
	// Handled: the handler's transaction is committed.
	Handled Kind = "handled"
	// Duplicate: the event was handled before.
	Duplicate Kind = "duplicate"
	// Failed: it is tried again, and the attempt is counted.
	Failed Kind = "failed"
	// Unavailable: it is tried again, and the attempt is not counted.
	Unavailable Kind = "unavailable"
	// DeadLettered: the dead-letter topic has it.
	DeadLettered Kind = "dead_lettered"
)

// Result is what an attempt came to, for one message.
type Result struct {
	Kind    Kind
	Message Message
	// Code says why; empty for Handled and Duplicate.
	Code string
	// Attempt counts from 1.
	Attempt int
	// Took is how long the attempt was; in a batch, an equal part of it.
	Took time.Duration
	Err  error
}

// Stats are counters since the start, and the partitions as they are.
type Stats struct {
	Handled, Duplicates, Failed, Unavailable, DeadLettered uint64
	// Commits and CommitsFailed count commits of offsets. One that failed is made up for by the next.
	Commits, CommitsFailed uint64
	// Assigned, Revoked and Lost count partitions.
	Assigned, Revoked, Lost uint64
	Partitions              []PartitionStats // by topic and number
}

// PartitionStats is a partition of this member.
type PartitionStats struct {
	Topic     string
	Partition int32
	// Next is the offset to be handled next, and End the one after the last that can be read, as of the last fetch; 0 before the
	// first.
	Next, End int64
	// Lag is how many are to be handled. The markers of a producer's transactions count as well.
	Lag int64
	// Queued is how many of them are here.
	Queued int
	// Blocked is the code of what the partition waits for; empty when it does not.
	Blocked string
}

// counters are the counters of Stats.
type counters struct {
	handled, duplicates, failed, unavailable, deadLettered atomic.Uint64
	commits, commitsFailed, assigned, revoked, lost        atomic.Uint64
}

func (c *counters) count(kind Kind) {
	switch kind {
	case Handled:
		c.handled.Add(1)
	case Duplicate:
		c.duplicates.Add(1)
	case Failed:
		c.failed.Add(1)
	case Unavailable:
		c.unavailable.Add(1)
	case DeadLettered:
		c.deadLettered.Add(1)
	}
}

func (c *counters) stats() Stats {
	return Stats{
		Handled: c.handled.Load(), Duplicates: c.duplicates.Load(), Failed: c.failed.Load(), Unavailable: c.unavailable.Load(),
		DeadLettered: c.deadLettered.Load(), Commits: c.commits.Load(), CommitsFailed: c.commitsFailed.Load(),
		Assigned: c.assigned.Load(), Revoked: c.revoked.Load(), Lost: c.lost.Load(),
	}
}
