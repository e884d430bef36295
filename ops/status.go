package ops

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// What Status looks at, at most. With it the answer costs the same with ten pending events and with ten million.
const (
	aboveLimit  = 5_000  // events above a cursor
	countLimit  = 10_000 // open deliveries of each status
	oldestLimit = 100    // open deliveries of each status, for the oldest age
	rateLimit   = 2_000  // newest deliveries, for the rate
)

// Status is the state of an outbox at one moment.
type Status struct {
	// At is the database's clock.
	At time.Time `json:"at"`
	// LastSeq is the highest number that the log has handed out.
	LastSeq      int64               `json:"last_seq"`
	Destinations []DestinationStatus `json:"destinations"`
}

// DestinationStatus is the state of one destination that a relay has worked on at least once.
type DestinationStatus struct {
	Destination string       `json:"destination"`
	Topics      relay.Topics `json:"topics"`
	// Position is the cursor's; Lag is how many numbers of the log lie above it.
	Position int64 `json:"position"`
	Lag      int64 `json:"lag"`
	// Pending are the events that are not delivered and have not failed: waiting, parked or under way.
	Pending Count `json:"pending"`
	// Failed are those that will be tried again, Quarantined those that wait for an operator.
	Failed      Count `json:"failed"`
	Quarantined Count `json:"quarantined"`
	// OldestPendingAge is how long the oldest event that is pending or failed could have been delivered: since it was
	// created, or since its available_at. 0: there is none. When the first 5,000 events above the cursor are none of the
	// destination's, the next one counts, whether it wants that or not: no relay has come to it, so nobody knows.
	OldestPendingAge Seconds `json:"oldest_pending_age_seconds"`
	// RatePerSecond is about how much was published per second in the last ten; 0 also when there is no ledger.
	RatePerSecond float64 `json:"rate_per_second"`
	// LeaseOwner is the relay that works on it; "": nobody does. Several relays, each on shards of its own, are divided by ", ".
	LeaseOwner string `json:"lease_owner"`
	// Shards has an entry for each, in their order, when there are several. What stands above is then of all: the lowest position,
	// the highest crash count, paused or failing when one of them is.
	Shards []ShardStatus `json:"shards,omitempty"`
	// PausedReason and PausedBy are "" while it is not paused.
	Paused       bool       `json:"paused"`
	PausedReason string     `json:"paused_reason,omitempty"`
	PausedBy     string     `json:"paused_by,omitempty"`
	PausedAt     *time.Time `json:"paused_at,omitempty"`
	// FailingSince is set while deliveries to it fail, LastErrorCode says with what.
	FailingSince  *time.Time `json:"failing_since,omitempty"`
	LastErrorCode string     `json:"last_error_code,omitempty"`
	// CrashCount are the relays that died on it in a row without getting further.
	CrashCount int `json:"crash_count"`
}

// ShardStatus is the state of one shard of a destination.
type ShardStatus struct {
	Shard      int    `json:"shard"`
	Position   int64  `json:"position"`
	Lag        int64  `json:"lag"`
	LeaseOwner string `json:"lease_owner"`
	Paused     bool   `json:"paused"`
	CrashCount int    `json:"crash_count"`
}

// Unattended says that nobody works on one of the shards, or on the destination at all.
func (d *DestinationStatus) Unattended() bool {
	return d.LeaseOwner == "" || slices.ContainsFunc(d.Shards, func(s ShardStatus) bool { return s.LeaseOwner == "" })
}

// Owners are the relays that work on it.
func (d *DestinationStatus) Owners() []string {
	var owners []string
	for _, s := range d.Shards {
		owners = append(owners, s.LeaseOwner)
	}
	if len(d.Shards) == 0 {
		owners = append(owners, d.LeaseOwner)
	}
	slices.Sort(owners)
	return slices.DeleteFunc(slices.Compact(owners), func(owner string) bool { return owner == "" })
}

// join takes in another shard of the same destination.
func (d *DestinationStatus) join(s DestinationStatus) {
	if len(d.Shards) == 0 {
		d.Shards = []ShardStatus{d.shard(0)}
	}
	d.Shards = append(d.Shards, s.shard(len(d.Shards)))
	d.Position, d.Lag, d.CrashCount = min(d.Position, s.Position), max(d.Lag, s.Lag), max(d.CrashCount, s.CrashCount)
	d.LeaseOwner = strings.Join(d.Owners(), ", ")
	if !d.Paused && s.Paused {
		d.Paused, d.PausedAt, d.PausedReason, d.PausedBy = true, s.PausedAt, s.PausedReason, s.PausedBy
	}
	if s.FailingSince != nil && (d.FailingSince == nil || s.FailingSince.Before(*d.FailingSince)) {
		d.FailingSince, d.LastErrorCode = s.FailingSince, s.LastErrorCode
	}
}

func (d *DestinationStatus) shard(n int) ShardStatus {
	return ShardStatus{Shard: n, Position: d.Position, Lag: d.Lag, LeaseOwner: d.LeaseOwner, Paused: d.Paused, CrashCount: d.CrashCount}
}

// Count is a number of events that was not counted beyond a limit.
type Count struct {
	N int64 `json:"count"`
	// Estimated: part of N was not counted but follows from how many of the numbers above the cursor are wanted.
	Estimated bool `json:"estimated"`
	// AtLeast: counting stopped at a limit, and there is more.
	AtLeast bool `json:"at_least"`
}

// Seconds is a duration that is printed as a number of seconds in JSON.
type Seconds time.Duration

// MarshalJSON prints seconds with milliseconds.
func (s Seconds) MarshalJSON() ([]byte, error) {
	return json.Marshal(float64(time.Duration(s).Milliseconds()) / 1000)
}

// UnmarshalJSON reads what MarshalJSON prints.
func (s *Seconds) UnmarshalJSON(text []byte) error {
	var seconds float64
	if err := json.Unmarshal(text, &seconds); err != nil {
		return err
	}
	*s = Seconds(time.Duration(math.Round(seconds*1000)) * time.Millisecond)
	return nil
}

// Status looks at all destinations, on one snapshot. It is cheap however much is pending: it counts up to a limit and estimates
// from there on. Destinations that no relay has worked on yet are not in it.
func (o *Ops) Status(ctx context.Context) (Status, error) {
	tx, err := o.db.BeginTx(ctx, &sql.TxOptions{Isolation: o.queries.isolation, ReadOnly: true})
	if err != nil {
		return Status{}, fmt.Errorf("read the status: %w", err)
	}
	defer tx.Rollback()
	if o.queries.plan != "" {
		if _, err := tx.ExecContext(ctx, o.queries.plan); err != nil {
			return Status{}, fmt.Errorf("read the status: %w", err)
		}
	}
	status, err := o.cursors(ctx, tx)
	if err != nil {
		return Status{}, fmt.Errorf("read the cursors: %w", err)
	}
	for i := range status.Destinations {
		if err := o.measure(ctx, tx, &status.Destinations[i], status); err != nil {
			return Status{}, fmt.Errorf("read the status of %s: %w", status.Destinations[i].Destination, err)
		}
	}
	return status, nil
}

// cursors returns the status with what the cursor rows alone say.
func (o *Ops) cursors(ctx context.Context, tx *sql.Tx) (Status, error) {
	status := Status{Destinations: []DestinationStatus{}}
	rows, err := tx.QueryContext(ctx, o.queries.cursors)
	if err != nil {
		return status, err
	}
	defer rows.Close()
	for rows.Next() {
		var d DestinationStatus
		var topics string
		var inFlightTo, leaseExpires, now int64
		var pausedAt, failingSince sql.NullInt64
		if err := rows.Scan(&d.Destination, &topics, &d.Position, &inFlightTo, &status.LastSeq, &d.LeaseOwner, &leaseExpires,
			&pausedAt, &d.PausedReason, &d.PausedBy, &failingSince, &d.LastErrorCode, &d.CrashCount, &now); err != nil {
			return status, err
		}
		if err := json.Unmarshal([]byte(topics), &d.Topics); err != nil {
			return status, fmt.Errorf("topics of %s: %w", d.Destination, err)
		}
		if leaseExpires <= now {
			d.LeaseOwner = ""
		}
		d.Paused, d.PausedAt, d.FailingSince = pausedAt.Valid, moment(pausedAt), moment(failingSince)
		if d.FailingSince == nil {
			d.LastErrorCode = ""
		}
		d.Lag = max(0, status.LastSeq-d.Position)
		status.At = time.UnixMicro(now).UTC()
		if n := len(status.Destinations); n > 0 && status.Destinations[n-1].Destination == d.Destination {
			status.Destinations[n-1].join(d)
			continue
		}
		status.Destinations = append(status.Destinations, d)
	}
	return status, rows.Err()
}

func moment(micros sql.NullInt64) *time.Time {
	if !micros.Valid {
		return nil
	}
	t := time.UnixMicro(micros.Int64).UTC()
	return &t
}

// measure counts what is open.
func (o *Ops) measure(ctx context.Context, tx *sql.Tx, d *DestinationStatus, s Status) error {
	above, err := survey(ctx, tx, o.queries.above, d, aboveLimit)
	if err != nil {
		return err
	}
	oldest := above.oldest
	if above.rows >= aboveLimit && above.wanted == 0 && above.open > 0 {
		if oldest, err = o.createdBehind(ctx, tx, above.last); err != nil {
			return err
		}
	}
	d.Pending = above.estimate(d.Position, s.LastSeq)
	if o.queries.gaps != "" {
		late, err := survey(ctx, tx, o.queries.gaps, d, aboveLimit)
		if err != nil {
			return err
		}
		oldest = earliest(oldest, late.oldest)
		d.Pending.N += late.wanted
		d.Pending.AtLeast = late.rows >= aboveLimit
	}
	var pending, publishing, failed, quarantined int64
	var open sql.NullInt64
	if err := tx.QueryRowContext(ctx, o.queries.ledger, d.Destination, countLimit, oldestLimit, rateLimit).
		Scan(&pending, &publishing, &failed, &quarantined, &open, &d.RatePerSecond); err != nil {
		return err
	}
	d.Pending.N += pending + publishing
	d.Pending.AtLeast = d.Pending.AtLeast || pending == countLimit || publishing == countLimit
	d.Failed = Count{N: failed, AtLeast: failed == countLimit}
	d.Quarantined = Count{N: quarantined, AtLeast: quarantined == countLimit}
	if oldest = earliest(oldest, open); oldest.Valid {
		d.OldestPendingAge = Seconds(max(0, s.At.Sub(time.UnixMicro(oldest.Int64))))
	}
	return nil
}

// createdBehind is when the first event behind a number was created, in microseconds, if there is one.
func (o *Ops) createdBehind(ctx context.Context, tx *sql.Tx, seq int64) (created sql.NullInt64, err error) {
	err = tx.QueryRowContext(ctx, o.queries.seqAt.at, seq+1).Scan(&seq, &created)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return created, err
}

// surveyed is what a look at a stretch of the log has found.
type surveyed struct {
	rows   int64         // events that were looked at
	open   int64         // those that have no delivery row
	wanted int64         // those of them that the destination wants
	last   int64         // the highest number
	oldest sql.NullInt64 // since when the oldest of the wanted could be delivered, µs
}

func survey(ctx context.Context, tx *sql.Tx, query string, d *DestinationStatus, limit int) (s surveyed, err error) {
	rows, err := tx.QueryContext(ctx, query, d.Destination, d.Position, limit)
	if err != nil {
		return s, err
	}
	defer rows.Close()
	for rows.Next() {
		var topic string
		var count, open, last int64
		var oldest sql.NullInt64
		if err := rows.Scan(&topic, &count, &open, &last, &oldest); err != nil {
			return s, err
		}
		s.rows += count
		s.open += open
		s.last = max(s.last, last)
		if d.Topics.Match(topic) {
			s.wanted += open
			s.oldest = earliest(s.oldest, oldest)
		}
	}
	return s, rows.Err()
}

// estimate goes by how many of the numbers that were looked at are wanted, when there are more above them.
func (s surveyed) estimate(position, lastSeq int64) Count {
	if s.rows < aboveLimit || s.last <= position {
		return Count{N: s.wanted}
	}
	density := float64(s.wanted) / float64(s.last-position)
	return Count{N: s.wanted + int64(density*float64(max(0, lastSeq-s.last))), Estimated: true}
}

func earliest(a, b sql.NullInt64) sql.NullInt64 {
	if !a.Valid || b.Valid && b.Int64 < a.Int64 {
		return b
	}
	return a
}
