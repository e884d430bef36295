package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// The indexes are named, and their conditions repeated, because SQLite's planner would rather go through a whole destination.
const (
	publishingSQL = `
select seq from outbox_delivery indexed by outbox_delivery_open
 where destination = ?1 and status = 'PUBLISHING' and status not in ('PUBLISHED', 'DISCARDED')
 order by seq`

	takeOverSQL = `
update outbox_delivery indexed by outbox_delivery_open
   set status = case when attempt_count > 0 then 'FAILED' else 'PENDING' end, next_attempt_at = ?2,
       last_error_code = ?3, locked_by = null, locked_at = null
 where destination = ?1 and status = 'PUBLISHING' and status not in ('PUBLISHED', 'DISCARDED')`

	aboveSQL = `
select seq from outbox_delivery
 where destination = ?1 and seq > (select position from outbox_cursor where destination = ?1 and shard = 0)
 order by seq`

	// Lanes in which something stands that only time or an operator moves.
	blockedLanesSQL = `
select endpoint, partition_key from outbox_delivery indexed by outbox_delivery_open
 where destination = ?1 and status in ('FAILED', 'QUARANTINED') and status not in ('PUBLISHED', 'DISCARDED')
   and partition_key is not null
union
select endpoint, partition_key from outbox_delivery indexed by outbox_delivery_due
 where destination = ?1 and next_attempt_at is not null and status = 'PENDING' and partition_key is not null
 limit ?2`

	// From one endpoint to the next, so that it costs a look each, however many rows wait there.
	endpointsSQL = `
with recursive waiting (endpoint) as (
  select min(endpoint) from outbox_delivery indexed by outbox_delivery_parked
   where destination = ?1 and status = 'PENDING' and next_attempt_at is null
   union all
  select (select min(d.endpoint) from outbox_delivery d indexed by outbox_delivery_parked
           where d.destination = ?1 and d.status = 'PENDING' and d.next_attempt_at is null and d.endpoint > waiting.endpoint)
    from waiting
   where waiting.endpoint is not null
)
select endpoint from waiting where endpoint is not null`

	nextDueSQL = `
select min(next_attempt_at) from outbox_delivery indexed by outbox_delivery_due
 where destination = ?1 and next_attempt_at is not null and next_attempt_at > ?2`
)

// Recover implements relay.Ledger.
func (s *Store) Recover(ctx context.Context, l relay.LeaseID, limit int) (found relay.Recovered, err error) {
	err = s.write(ctx, "recover "+l.Destination, func(tx *transaction) error {
		if last, err := tx.fence(l); err != nil {
			return err
		} else if last > 0 {
			return fmt.Errorf("it comes after settle %d, so it was given up: nothing was changed", last)
		}
		found = relay.Recovered{}
		publishing, err := tx.numbers(publishingSQL, l.Destination)
		if err != nil {
			return err
		}
		found.PublishingCount, found.Publishing = len(publishing), publishing[:min(len(publishing), limit)]
		if _, err := tx.exec(takeOverSQL, l.Destination, tx.now, relay.CodeTakeover); err != nil {
			return err
		}
		if found.Above, err = tx.numbers(aboveSQL, l.Destination); err != nil {
			return err
		}
		if found.Lanes, found.LanesCut, err = tx.blockedLanes(l.Destination, limit); err != nil {
			return err
		}
		if found.Endpoints, err = tx.waitingEndpoints(l.Destination); err != nil {
			return err
		}
		found.NextDue, err = tx.nextDue(l.Destination, 0)
		return err
	})
	return found, err
}

func (t *transaction) numbers(query string, args ...any) (all []int64, err error) {
	err = t.each(query, args, func(rows *sql.Rows) error {
		var n int64
		err := rows.Scan(&n)
		all = append(all, n)
		return err
	})
	return all, err
}

func (t *transaction) blockedLanes(destination string, limit int) (lanes []relay.LaneID, cut bool, err error) {
	err = t.each(blockedLanesSQL, []any{destination, limit + 1}, func(rows *sql.Rows) error {
		var lane relay.LaneID
		err := rows.Scan(&lane.Endpoint, &lane.Key)
		lanes = append(lanes, lane)
		return err
	})
	if len(lanes) > limit {
		return lanes[:limit], true, err
	}
	return lanes, false, err
}

func (t *transaction) waitingEndpoints(destination string) (endpoints []string, err error) {
	err = t.each(endpointsSQL, []any{destination}, func(rows *sql.Rows) error {
		var endpoint string
		err := rows.Scan(&endpoint)
		endpoints = append(endpoints, endpoint)
		return err
	})
	return endpoints, err
}

// nextDue is the time until the next row is due of those that are due after the given moment; 0 when it is due already, negative
// when there is none.
func (t *transaction) nextDue(destination string, after int64) (time.Duration, error) {
	var at sql.NullInt64
	if err := t.queryRow(nextDueSQL, destination, after).Scan(&at); err != nil || !at.Valid {
		return -1, err
	}
	return max(0, time.Duration(at.Int64-t.now)*time.Microsecond), nil
}
