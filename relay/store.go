package relay

import (
	"context"
	"errors"
	"time"
)

// A Store is the database side of a relay. One value serves all units of a process at once.
type Store interface {
	Log
	Leases
	Ledger
}

// Log is outbox_event, read only.
type Log interface {
	// Read returns, as one statement on one snapshot, the rows of the gaps and then the next rows above
	// the position, each part in seq order.
	Read(ctx context.Context, q Query) (Page, error)
}

// Query says what to read of the log.
type Query struct {
	// After is the position: only larger numbers, besides the gaps, are read.
	After int64
	// Gaps are ranges below After to look at again; ascending.
	Gaps []Range
	// Limit bounds the rows above After; rows out of gaps come on top and are bounded by it too.
	Limit int
	// MaxBytes bounds the page (Event.Size of what is wanted); at least one row is returned when there is one.
	MaxBytes int
	// Topics are the patterns of what is wanted. See Topics.
	Topics Topics
	// Shard is the part that is wanted of them.
	Shard Shard
}

// Page is what one Read saw.
type Page struct {
	// Events are the wanted ones: those out of gaps first, then those above Query.After, each part ascending.
	Events []*Event
	// GapSeqs and Seqs are all numbers that were seen, wanted or not: the rows out of gaps, and the rows above
	// Query.After. What is missing below the last of Seqs is a gap.
	GapSeqs, Seqs []int64
	// GapsCut says that Limit or MaxBytes was reached within the gaps: gaps above the last of GapSeqs were not
	// fully looked at, and Seqs is empty.
	GapsCut bool
	// Full says that Limit or MaxBytes was reached: read again at once.
	Full bool
	// Horizon is the store's proof of death for gaps: every transaction whose number is below it had ended
	// when the page was read (PostgreSQL: pg_snapshot_xmin). See Cursor.
	Horizon uint64
	// Now is the database's clock when the page was read: an event's age is Now - CreatedAt.
	Now time.Time
}

// Leases give the right to work on a destination, or on one shard of it.
type Leases interface {
	// Acquire takes the lease of a shard if it is free or expired. A destination that is new gets the cursor rows of all its
	// shards. ok is false while another relay holds the lease; the Lease then says who and for how long yet. ErrShards: the
	// destination has another number of shards.
	Acquire(ctx context.Context, r AcquireRequest) (lease Lease, ok bool, err error)
	// Renew prolongs the lease by its TTL and returns what an operator may have changed. ErrLeaseLost: another relay has it.
	Renew(ctx context.Context, l LeaseID) (Renewal, error)
	// Release gives the lease back at once, after a last Settle. A lost lease is no error here.
	Release(ctx context.Context, l LeaseID) error
}

// AcquireRequest names a destination and who wants to work on it.
type AcquireRequest struct {
	Destination string
	Shard       Shard
	Owner       string
	TTL         time.Duration
	// Topics are stored beside the cursor, for the view and for retention.
	Topics Topics
	// StartAtEnd lets a destination that is new start behind the last event of the log; the default is the
	// beginning of the retained log, which loses nothing.
	StartAtEnd bool
}

// LeaseID is what fences a settle: once another relay has acquired the destination, Epoch no longer fits.
type LeaseID struct {
	Destination string
	Shard       Shard
	Owner       string
	Epoch       int64
	TTL         time.Duration
}

// Lease is a lease as it was acquired, with the cursor of the destination. When ok was false only Owner,
// ExpiresIn and the pause are set.
type Lease struct {
	LeaseID
	ExpiresIn time.Duration
	// Position, Gaps and InFlightTo are what the last settle wrote.
	Position   int64
	Gaps       []Range
	InFlightTo int64
	// LastSeq is the highest number that the log's sequence has handed out.
	LastSeq int64
	// Unclean says that the former owner did not release it. CrashCount already counts this takeover: it is raised
	// by one when the takeover is unclean and either the position has not moved since the former owner acquired
	// the lease or the count had already reached IsolateAfter.
	Unclean    bool
	CrashCount int
	Pause      Pause
}

// Renewal is what a Renew found.
type Renewal struct {
	LastSeq int64
	Pause   Pause
}

// Pause is an operator's or the guard's word that nothing is delivered; the zero value: not paused.
type Pause struct {
	Reason string // "" : not paused
	By     string
}

// Ledger is outbox_cursor and outbox_delivery as the owner of a lease writes them. Each call is one
// transaction that first checks the epoch; ErrLeaseLost says that it did not fit and nothing was written. What Recover and Claim
// find is of the lease's shard alone, but for the endpoints of Recover, which are those of all shards.
type Ledger interface {
	// Settle writes outcomes down, atomically with the cursor, and prolongs the lease.
	Settle(ctx context.Context, l LeaseID, s Settlement) (Settled, error)
	// Recover is called after Acquire, before the first numbered Settle; after that it is an error. Rows that a former owner
	// left PUBLISHING become due at once, with last_error_code CodeTakeover: FAILED when attempt_count is above 0, else
	// PENDING. What is open is listed.
	Recover(ctx context.Context, l LeaseID, limit int) (Recovered, error)
	// Claim takes open deliveries out of the ledger: each becomes PUBLISHING, locked by the owner.
	Claim(ctx context.Context, l LeaseID, c Claim) (Claimed, error)
}

// Settlement is one transaction's worth of outcomes.
type Settlement struct {
	// Number counts the settles of a lease from 1. The owner repeats a settle whose answer was lost under its old number.
	// A number that was settled already changes nothing but the lease's time, and is no error; its Settled is zero. A lower one
	// was given up by its maker and arrives late: an error, and nothing is written. 0 is always written.
	Number     int64
	Position   int64
	Gaps       []Range // ascending, below Position
	InFlightTo int64
	CrashCount int
	// Published are happy-path rows, first attempt, no row before: appended, with the receipt.
	Published []Receipt
	// Rows replace the delivery rows of their numbers, whatever stood there.
	Rows []Row
	// Trouble is the destination's last error code while it fails, "" when all is well: failing_since is
	// set when it becomes non-empty and cleared when it becomes empty.
	Trouble string
	// Pause sets the pause if it is non-zero (the guard's doing). It is never cleared here.
	Pause Pause
	// Asleep tells producers that this relay waits for a notification.
	Asleep bool
}

// Receipt is a first-attempt success.
type Receipt struct {
	Seq     int64
	Receipt string
}

// Status is the state of a delivery.
type Status string

const (
	StatusPending     Status = "PENDING"
	StatusPublishing  Status = "PUBLISHING"
	StatusPublished   Status = "PUBLISHED"
	StatusFailed      Status = "FAILED"
	StatusQuarantined Status = "QUARANTINED"
	StatusDiscarded   Status = "DISCARDED"
)

// Row is a delivery row as a settle writes it. last_attempt_at is the time of the settle when Attempted.
type Row struct {
	Seq       int64
	Status    Status
	Attempts  int // attempt_count
	Attempted bool
	// Endpoint is kept while the delivery is not published.
	Endpoint string
	// Key is the partition key; it is stored exactly while OpenLane is set: as long as the row stands in the
	// way of later events of its lane, or waits behind another one.
	Key      string
	OpenLane bool
	// Due: next_attempt_at is the database's now + NextIn. Otherwise it is null: the row waits for its lane
	// or its endpoint.
	Due          bool
	NextIn       time.Duration
	Receipt      string
	ErrorCode    string
	ErrorMessage string
}

// Settled is what a settle tells the cursor.
type Settled struct {
	// Bound is a transaction number that is higher than that of every transaction that had one when the
	// settle began (PostgreSQL: the settle's own xid). 0: none was taken.
	Bound uint64
}

// LaneID names a lane: the deliveries of one destination that share an endpoint and a partition key.
type LaneID struct{ Endpoint, Key string }

// Recovered is what Recover found.
type Recovered struct {
	// Publishing are the numbers of the rows that a former owner had in flight, at most limit; PublishingCount is
	// how many there were. Each may be sent twice.
	Publishing      []int64
	PublishingCount int
	// Above are all numbers above the cursor's position that have a row, whatever its status, ascending: the log holds
	// them, but they are settled, parked or being recovered, and must not be handed out again.
	Above []int64
	// Lanes are the keyed lanes in which an open row stands that is not simply parked: FAILED, QUARANTINED with its
	// partition_key, or with a next_attempt_at. At most limit; LanesCut says that there are more. (Lanes with parked
	// rows alone are found through Endpoints.)
	Lanes    []LaneID
	LanesCut bool
	// Endpoints are those that have PENDING rows without next_attempt_at.
	Endpoints []string
	// NextDue is the time until the next row is due; negative: there is none.
	NextDue time.Duration
}

// Claim says which open rows to take. Exactly one of Due, Lane and Endpoint is set.
//
// Only eligible rows are taken. A row is ready when it is PENDING without next_attempt_at, or when its next_attempt_at
// has passed (FAILED, PENDING, or DISCARDED by an operator who lets a held lane go on). A ready row is eligible
// when every open row of its lane with a lower number is ready too and comes before it in the same claim. So what
// waits behind a FAILED, PUBLISHING or QUARANTINED head stays where it is, and nothing overtakes within a lane: neither
// what is due behind something that is due later, nor what Limit leaves behind. PUBLISHED and DISCARDED rows are not
// open: they stand in nobody's way.
type Claim struct {
	// Due: eligible rows with a next_attempt_at that has passed, by next_attempt_at, seq.
	Due bool
	// Lane: eligible rows of this lane, in seq order.
	Lane *LaneID
	// Endpoint: eligible rows of this endpoint without next_attempt_at and with a number above After, in seq order.
	Endpoint *string
	After    int64
	// Charge adds one to attempt_count before the attempt is made: what kills the process leaves a trace.
	Charge   bool
	Limit    int
	MaxBytes int // of Event.Size; at least one row is taken
}

// Open is a claimed delivery.
type Open struct {
	Event *Event
	// Endpoint is that of the row. "" also for a row that an operator set going again after it was published: the relay writes it
	// back, due at once, with the endpoint that the Router names now, and delivers it when it has claimed it from there.
	Endpoint string
	// Attempts are those made before this claim.
	Attempts int
	// Status before this claim; DISCARDED: there is nothing to deliver, the lane goes on. A DISCARDED row
	// keeps its status when it is claimed; its next_attempt_at and partition_key are cleared. A row whose event is gone
	// from the log becomes QUARANTINED with CodeEventMissing, out of its lane, and is returned like a DISCARDED one.
	Status Status
	// LastErrorCode of the attempt before; CodeTakeover when a former owner had it in flight.
	LastErrorCode string
}

// Claimed is what a Claim took.
type Claimed struct {
	Deliveries []Open
	// More says that Limit or MaxBytes was reached: there may be more of the same.
	More bool
	// Blocked, for a claim by Lane: open rows remain in the lane that were not eligible.
	Blocked bool
	// NextDue is the time until the next row is due, 0 when one is already; negative: there is none. After a claim by
	// Due, rows that are due but were not eligible do not count: they wait for their lane.
	NextDue time.Duration
}

// A Waker is a Store whose producers can wake a sleeping relay.
type Waker interface {
	// Listen returns a channel that gets a value when a producer commits while a relay is asleep.
	// It is closed when the context ends.
	Listen(ctx context.Context) (<-chan struct{}, error)
}

// IsolateAfter is the number of unclean takeovers without progress at which a unit tries its suspects one by one.
const IsolateAfter = 3

// Error codes of the relay's own.
const (
	CodeTakeover     = "TAKEOVER"      // the relay that had the delivery in flight is gone
	CodeExhausted    = "EXHAUSTED"     // max_attempts were made
	CodeCrashedRelay = "CRASHED_RELAY" // the process died each time this was tried
	CodeRejectStorm  = "REJECT_STORM"  // nearly everything is rejected: the guard paused the destination
	CodeKeyTooLong   = "KEY_TOO_LONG"  // the key or the endpoint has more than MaxKeyLength bytes
	CodeEventMissing = "EVENT_MISSING" // somebody deleted the event from the log before it was delivered
)

var (
	// ErrLeaseLost is returned by a store when the lease's epoch is no longer the destination's.
	ErrLeaseLost = errors.New("lease lost: another relay has taken the destination over")
	// ErrShards is returned by a store when a destination has another number of shards than was asked for.
	ErrShards = errors.New("the destination has another number of shards")
	// ErrLogReset says that the log's numbers went back: TRUNCATE … RESTART IDENTITY, or a partial restore.
	ErrLogReset = errors.New("the numbers of the log went back")
	// ErrShutdown is the cause of a context that ends because the relay stops.
	ErrShutdown = errors.New("relay stops")
)
