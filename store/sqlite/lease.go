package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"time"

	"github.com/pillarbox-dev/pillarbox/relay"
)

const (
	// A new destination begins before the first event, or behind the last one; then nothing is in flight below it.
	newCursorSQL = `
insert into outbox_cursor (destination, shard, position, in_flight_to, updated_at)
select ?1, 0, start, start, ?3
  from (select case when ?2 then coalesce((select max(seq) from outbox_event), 0) else 0 end as start)
 where true
    on conflict do nothing`

	cursorSQL = `
select position, gaps, in_flight_to, acquired_position, crash_count, lease_owner, lease_epoch, lease_expires_at,
       paused_at is not null, paused_reason, paused_by,
       coalesce((select seq from sqlite_sequence where name = 'outbox_event'), 0)
  from outbox_cursor
 where destination = ?1 and shard = 0`

	takeLeaseSQL = `
update outbox_cursor
   set lease_owner = ?2, lease_epoch = ?3, lease_expires_at = ?4, acquired_position = position, crash_count = ?5, topics = ?6,
       asleep = 0, settle_number = 0, updated_at = ?7
 where destination = ?1 and shard = 0`

	renewSQL = `
update outbox_cursor set lease_expires_at = ?4
 where destination = ?1 and shard = 0 and lease_owner = ?2 and lease_epoch = ?3`

	releaseSQL = `
update outbox_cursor set lease_owner = null, lease_expires_at = null, asleep = 0
 where destination = ?1 and shard = 0 and lease_owner = ?2 and lease_epoch = ?3`
)

// Acquire implements relay.Leases.
func (s *Store) Acquire(ctx context.Context, r relay.AcquireRequest) (lease relay.Lease, ok bool, err error) {
	if !r.Shard.Whole() {
		return relay.Lease{}, false, s.failed(ctx, "acquire "+r.Destination, relay.ErrShards)
	}
	topics, err := json.Marshal(append(relay.Topics{}, r.Topics...))
	if err != nil {
		return relay.Lease{}, false, s.failed(ctx, "acquire "+r.Destination, err)
	}
	err = s.write(ctx, "acquire "+r.Destination, func(tx *transaction) error {
		if _, err := tx.exec(newCursorSQL, r.Destination, r.StartAtEnd, tx.now); err != nil {
			return err
		}
		c, err := tx.cursor(r.Destination)
		if err != nil {
			return err
		}
		if left := c.expiresIn(tx.now); c.owner != "" && left > 0 {
			lease = relay.Lease{LeaseID: relay.LeaseID{Owner: c.owner}, ExpiresIn: left, Pause: c.pause}
			return nil
		}
		ok = true
		lease = c.taken(r)
		_, err = tx.exec(takeLeaseSQL, r.Destination, r.Owner, lease.Epoch, tx.in(r.TTL), lease.CrashCount, string(topics), tx.now)
		return err
	})
	if err != nil {
		return relay.Lease{}, false, err
	}
	return lease, ok, nil
}

// cursorRow is a row of outbox_cursor.
type cursorRow struct {
	position, inFlightTo, acquiredPosition int64
	gaps                                   []relay.Range
	crashCount                             int
	owner                                  string // "": free
	epoch, expiresAt                       int64
	pause                                  relay.Pause
	lastSeq                                int64 // of the log
}

func (tx *transaction) cursor(destination string) (c cursorRow, err error) {
	var gaps string
	var owner, reason, by sql.NullString
	var expiresAt sql.NullInt64
	var paused bool
	err = tx.queryRow(cursorSQL, destination).Scan(&c.position, &gaps, &c.inFlightTo, &c.acquiredPosition, &c.crashCount,
		&owner, &c.epoch, &expiresAt, &paused, &reason, &by, &c.lastSeq)
	if err != nil {
		return cursorRow{}, err
	}
	c.owner, c.expiresAt = owner.String, expiresAt.Int64
	if paused {
		c.pause = relay.Pause{Reason: reason.String, By: by.String}
		if c.pause.Reason == "" { // "" would mean that it is not paused
			c.pause.Reason = "paused"
		}
	}
	c.gaps, err = decodeRanges(gaps)
	return c, err
}

func (c *cursorRow) expiresIn(now int64) time.Duration {
	return time.Duration(c.expiresAt-now) * time.Microsecond
}

// taken returns the lease that a relay gets which takes the destination over.
func (c *cursorRow) taken(r relay.AcquireRequest) relay.Lease {
	l := relay.Lease{
		LeaseID:    relay.LeaseID{Destination: r.Destination, Shard: r.Shard, Owner: r.Owner, Epoch: c.epoch + 1, TTL: r.TTL},
		ExpiresIn:  r.TTL,
		Position:   c.position,
		Gaps:       c.gaps,
		InFlightTo: c.inFlightTo,
		LastSeq:    c.lastSeq,
		Unclean:    c.owner != "",
		CrashCount: c.crashCount,
		Pause:      c.pause,
	}
	if l.Unclean && (c.position == c.acquiredPosition || c.crashCount >= relay.IsolateAfter) {
		l.CrashCount++
	}
	return l
}

// Renew implements relay.Leases.
func (s *Store) Renew(ctx context.Context, l relay.LeaseID) (renewal relay.Renewal, err error) {
	err = s.write(ctx, "renew "+l.Destination, func(tx *transaction) error {
		if err := tx.fenced(renewSQL, l, tx.in(l.TTL)); err != nil {
			return err
		}
		c, err := tx.cursor(l.Destination)
		renewal = relay.Renewal{LastSeq: c.lastSeq, Pause: c.pause}
		return err
	})
	return renewal, err
}

// Release implements relay.Leases.
func (s *Store) Release(ctx context.Context, l relay.LeaseID) error {
	return s.write(ctx, "release "+l.Destination, func(tx *transaction) error {
		if err := tx.fenced(releaseSQL, l); !errors.Is(err, relay.ErrLeaseLost) {
			return err
		}
		return nil
	})
}
