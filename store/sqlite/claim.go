package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"math"
	"time"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// A claim goes through its candidates in its own order, each kind along an index of its own. The indexes are named because
// SQLite's planner knows nothing of the tables' sizes and would rather go through a whole destination.
const (
	// head is the first open row of the candidate's lane, next the one behind the candidate; both are one look at
	// outbox_delivery_lane each. Without a key, or where there is none, they are null.
	candidateColumns = `
select d.seq, d.status, d.attempt_count, coalesce(d.endpoint, ''), d.partition_key, d.last_error_code, true,
       (select o.seq from outbox_delivery o indexed by outbox_delivery_lane
         where o.destination = d.destination and o.endpoint = d.endpoint and o.partition_key = d.partition_key
           and o.status not in ('PUBLISHED', 'DISCARDED')
         order by o.seq limit 1),
       (select o.seq from outbox_delivery o indexed by outbox_delivery_lane
         where o.destination = d.destination and o.endpoint = d.endpoint and o.partition_key = d.partition_key
           and o.status not in ('PUBLISHED', 'DISCARDED') and o.seq > d.seq
         order by o.seq limit 1)`

	dueSQL = candidateColumns + `
  from outbox_delivery d indexed by outbox_delivery_due
 where d.destination = ?1 and d.next_attempt_at is not null and d.next_attempt_at <= ?2
 order by d.next_attempt_at, d.seq`

	parkedSQL = candidateColumns + `
  from outbox_delivery d indexed by outbox_delivery_parked
 where d.destination = ?1 and d.endpoint = ?2 and d.seq > ?3 and d.status = 'PENDING' and d.next_attempt_at is null
 order by d.seq`

	// The whole lane: its order says who comes before whom, so head and next are not needed.
	laneSQL = `
select d.seq, d.status, d.attempt_count, coalesce(d.endpoint, ''), d.partition_key, d.last_error_code,
       coalesce(d.next_attempt_at <= ?4, d.status = 'PENDING'), null, null
  from outbox_delivery d indexed by outbox_delivery_lane
 where d.destination = ?1 and d.endpoint = ?2 and d.partition_key = ?3
 order by d.seq`

	eventSQL = `
select e.seq, ` + eventColumns + ` from outbox_event e where e.seq = ?1`

	lockSQL = `
update outbox_delivery
   set status = 'PUBLISHING', locked_by = ?3, locked_at = ?4, next_attempt_at = null, attempt_count = attempt_count + ?5
 where destination = ?1 and seq in (select value from json_each(?2))`

	passSQL = `
update outbox_delivery set next_attempt_at = null, partition_key = null
 where destination = ?1 and seq in (select value from json_each(?2))`

	missingSQL = `
update outbox_delivery
   set status = case status when 'DISCARDED' then status else 'QUARANTINED' end,
       next_attempt_at = null, partition_key = null, last_error_code = ?3, last_error_message = ?4
 where destination = ?1 and seq in (select value from json_each(?2))`

	anyDueSQL = `
select exists (select 1 from outbox_delivery d indexed by outbox_delivery_due
                where d.destination = ?1 and d.next_attempt_at is not null and d.next_attempt_at <= ?2
                  and not exists (select 1 from outbox_delivery o indexed by outbox_delivery_lane
                                   where o.destination = d.destination and o.endpoint = d.endpoint
                                     and o.partition_key = d.partition_key and o.seq < d.seq
                                     and o.status not in ('PUBLISHED', 'DISCARDED')))`
)

// Claim implements relay.Ledger.
func (s *Store) Claim(ctx context.Context, l relay.LeaseID, c relay.Claim) (claimed relay.Claimed, err error) {
	err = s.write(ctx, "claim deliveries of "+l.Destination, func(tx *transaction) error {
		if _, err := tx.fence(l); err != nil {
			return err
		}
		cl := claimer{claim: c, row: newEventRow(), nextOpen: map[relay.LaneID]int64{}}
		if err := cl.choose(tx, l.Destination); err != nil {
			return err
		}
		if err := cl.lock(tx, l); err != nil {
			return err
		}
		claimed = cl.claimed
		claimed.NextDue, err = tx.nextClaim(l.Destination)
		return err
	})
	if err != nil {
		return relay.Claimed{}, err
	}
	return claimed, nil
}

// claimer chooses what a claim takes.
type claimer struct {
	claim    relay.Claim
	row      *eventRow
	nextOpen map[relay.LaneID]int64 // the first open row of a lane that was not taken
	claimed  relay.Claimed
	bytes    int
	missing  []int64 // taken, but the event is gone
}

// candidate is a row that a claim looks at.
type candidate struct {
	relay.Open
	seq        int64
	lane       relay.LaneID
	keyed      bool // it stands in a lane
	ready      bool
	head, next sql.NullInt64
}

func (c *candidate) open() bool {
	return c.Status != relay.StatusPublished && c.Status != relay.StatusDiscarded
}

// choose fills claimed.
func (c *claimer) choose(tx *transaction, destination string) error {
	query, args := dueSQL, []any{destination, tx.now}
	switch {
	case c.claim.Lane != nil:
		query, args = laneSQL, []any{destination, c.claim.Lane.Endpoint, c.claim.Lane.Key, tx.now}
	case c.claim.Endpoint != nil:
		query, args = parkedSQL, []any{destination, *c.claim.Endpoint, c.claim.After}
	}
	err := tx.each(query, args, func(rows *sql.Rows) error {
		row, err := scanCandidate(rows)
		if err != nil {
			return err
		}
		switch {
		case !row.ready && row.open(): // in a lane: all that follow wait for it
			c.claimed.Blocked = true
			return errEnough
		case !row.ready || !c.isNext(row):
			return nil
		}
		return c.take(tx, row)
	})
	c.claimed.More = c.claimed.More || len(c.claimed.Deliveries) == c.claim.Limit
	return err
}

func scanCandidate(rows *sql.Rows) (*candidate, error) {
	var c candidate
	var key, code sql.NullString
	err := rows.Scan(&c.seq, &c.Status, &c.Attempts, &c.Endpoint, &key, &code, &c.ready, &c.head, &c.next)
	c.LastErrorCode = code.String
	c.lane, c.keyed = relay.LaneID{Endpoint: c.Endpoint, Key: key.String}, key.Valid
	return &c, err
}

// isNext tells whether all open rows before this one in its lane were taken by this claim.
func (c *claimer) isNext(row *candidate) bool {
	if !row.keyed || c.claim.Lane != nil {
		return true
	}
	next, known := c.nextOpen[row.lane]
	if !known {
		next = orNone(row.head)
		c.nextOpen[row.lane] = next
	}
	return next >= row.seq
}

// orNone returns a number that no row has when there is none.
func orNone(seq sql.NullInt64) int64 {
	if seq.Valid {
		return seq.Int64
	}
	return math.MaxInt64
}

// take adds a row if there is room for it. When somebody deleted the event there is nothing to deliver: the lane goes on, as if
// an operator had discarded it, and the row says why.
func (c *claimer) take(tx *transaction, row *candidate) (err error) {
	if len(c.claimed.Deliveries) == c.claim.Limit {
		return errEnough
	}
	if row.Event, err = c.event(tx, row.seq); err != nil {
		return err
	}
	if row.Event == nil {
		c.missing = append(c.missing, row.seq)
		row.Event, row.Status = &relay.Event{Seq: row.seq, Key: row.lane.Key}, relay.StatusDiscarded
	}
	if len(c.claimed.Deliveries) > 0 && c.bytes+row.Event.Size() > c.claim.MaxBytes {
		c.claimed.More = true
		return errEnough
	}
	c.bytes += row.Event.Size()
	c.claimed.Deliveries = append(c.claimed.Deliveries, row.Open)
	if row.keyed && row.seq == c.nextOpen[row.lane] {
		c.nextOpen[row.lane] = orNone(row.next)
	}
	return nil
}

// event reads an event; nil when it is not there.
func (c *claimer) event(tx *transaction, seq int64) (event *relay.Event, err error) {
	err = tx.each(eventSQL, []any{seq}, func(rows *sql.Rows) error {
		_, err := c.row.scan(rows)
		event = c.row.event(time.UnixMicro(tx.now))
		return err
	})
	return event, err
}

// lock writes down what was taken. Rows keep their place in the lane, but for the discarded: they are done with.
func (c *claimer) lock(tx *transaction, l relay.LeaseID) error {
	var lock, pass []int64
	for _, d := range c.claimed.Deliveries {
		if d.Status == relay.StatusDiscarded {
			pass = append(pass, d.Event.Seq)
		} else {
			lock = append(lock, d.Event.Seq)
		}
	}
	charge := 0
	if c.claim.Charge {
		charge = 1
	}
	if err := tx.change(lockSQL, l, lock, l.Owner, tx.now, charge); err != nil {
		return err
	}
	if err := tx.change(passSQL, l, pass); err != nil {
		return err
	}
	return tx.change(missingSQL, l, c.missing, relay.CodeEventMissing, "somebody deleted the event from outbox_event")
}

// change runs an update whose first parameters are the destination and a list of numbers.
func (t *transaction) change(query string, l relay.LeaseID, seqs []int64, args ...any) error {
	if len(seqs) == 0 {
		return nil
	}
	list, err := json.Marshal(seqs)
	if err != nil {
		return err
	}
	_, err = t.exec(query, append([]any{l.Destination, string(list)}, args...)...)
	return err
}

// nextClaim is the time until a claim by Due finds something; negative: it is not known that it ever will.
func (t *transaction) nextClaim(destination string) (time.Duration, error) {
	var due bool
	if err := t.queryRow(anyDueSQL, destination, t.now).Scan(&due); err != nil || due {
		return 0, err
	}
	return t.nextDue(destination, t.now)
}
