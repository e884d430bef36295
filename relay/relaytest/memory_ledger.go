package relaytest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// Settle implements relay.Ledger.
func (m *Memory) Settle(ctx context.Context, l relay.LeaseID, s relay.Settlement) (relay.Settled, error) {
	if err := ctx.Err(); err != nil {
		return relay.Settled{}, fmt.Errorf("settle %s: %w", l.Destination, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	p, err := m.leased(l)
	if err != nil {
		return relay.Settled{}, err
	}
	for _, r := range s.Rows {
		if !known(r.Status) {
			return relay.Settled{}, fmt.Errorf("settle %s: row %d violates outbox_delivery_status: %q", l.Destination, r.Seq, r.Status)
		}
	}
	now := time.Now()
	if s.Number != 0 && s.Number <= p.cursor.SettleNumber {
		if s.Number < p.cursor.SettleNumber {
			return relay.Settled{}, fmt.Errorf("settle %s: number %d comes after %d", l.Destination, s.Number, p.cursor.SettleNumber)
		}
		p.cursor.ExpiresAt = now.Add(l.TTL)
		return relay.Settled{}, nil
	}
	for _, r := range s.Published {
		p.put(&DeliveryRow{
			Seq: r.Seq, Status: relay.StatusPublished, Attempts: 1, Receipt: r.Receipt,
			LastAttemptAt: now, PublishedAt: now,
		})
	}
	for _, r := range s.Rows {
		p.put(written(r, l.Owner, now, p.rows[r.Seq]))
	}
	p.cursor.settle(s, now)
	p.cursor.ExpiresAt = now.Add(l.TTL)
	return relay.Settled{Bound: m.takeXID()}, nil
}

func known(s relay.Status) bool {
	switch s {
	case relay.StatusPending, relay.StatusPublishing, relay.StatusPublished, relay.StatusFailed, relay.StatusQuarantined,
		relay.StatusDiscarded:
		return true
	}
	return false
}

// written is what a settle makes of a row; before is nil when there was none.
func written(r relay.Row, owner string, now time.Time, before *DeliveryRow) *DeliveryRow {
	row := &DeliveryRow{
		Seq: r.Seq, Status: r.Status, Attempts: r.Attempts, Receipt: r.Receipt,
		ErrorCode: r.ErrorCode, ErrorMessage: r.ErrorMessage,
	}
	if before != nil {
		row.LastAttemptAt = before.LastAttemptAt
	}
	if r.Attempted {
		row.LastAttemptAt = now
	}
	if r.OpenLane {
		row.OpenLane, row.Key = true, r.Key
	}
	if r.Due {
		row.NextAttemptAt = now.Add(r.NextIn)
	}
	switch r.Status {
	case relay.StatusPublished:
		row.PublishedAt = now
		return row
	case relay.StatusPublishing:
		row.LockedBy, row.LockedAt = owner, now
	}
	row.Endpoint = r.Endpoint
	return row
}

func (c *CursorRow) settle(s relay.Settlement, now time.Time) {
	c.Position, c.Gaps, c.InFlightTo = s.Position, slices.Clone(s.Gaps), s.InFlightTo
	c.CrashCount, c.Asleep = s.CrashCount, s.Asleep
	c.SettleNumber = max(c.SettleNumber, s.Number)
	switch {
	case s.Trouble == "":
		c.FailingSince = time.Time{}
	case c.FailingSince.IsZero():
		c.FailingSince = now
	}
	c.ErrorCode = s.Trouble
	if s.Pause != (relay.Pause{}) {
		c.Pause = s.Pause
	}
}

// Recover implements relay.Ledger. As in PostgreSQL, the endpoints are those of all shards.
func (m *Memory) Recover(ctx context.Context, l relay.LeaseID, limit int) (relay.Recovered, error) {
	if err := ctx.Err(); err != nil {
		return relay.Recovered{}, fmt.Errorf("recover %s: %w", l.Destination, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	p, err := m.leased(l)
	if err != nil {
		return relay.Recovered{}, err
	}
	if p.cursor.SettleNumber > 0 {
		return relay.Recovered{}, fmt.Errorf("recover %s: it comes after settle %d", l.Destination, p.cursor.SettleNumber)
	}
	var found relay.Recovered
	now := time.Now()
	lanes, endpoints := map[relay.LaneID]bool{}, map[string]bool{}
	for _, row := range p.live {
		if row.parked() && !endpoints[row.Endpoint] {
			endpoints[row.Endpoint] = true
			found.Endpoints = append(found.Endpoints, row.Endpoint)
		}
		if !p.owns(row) {
			continue
		}
		if row.Status == relay.StatusPublishing {
			found.PublishingCount++
			if len(found.Publishing) < limit {
				found.Publishing = append(found.Publishing, row.Seq)
			}
			row.takenOver(now)
		}
		if row.open() && row.OpenLane && !row.parked() && !lanes[row.lane()] {
			lanes[row.lane()] = true
			if len(found.Lanes) == limit {
				found.LanesCut = true
			} else {
				found.Lanes = append(found.Lanes, row.lane())
			}
		}
	}
	for seq, row := range p.rows {
		if seq > p.cursor.Position && p.owns(row) {
			found.Above = append(found.Above, seq)
		}
	}
	slices.Sort(found.Above)
	found.NextDue = p.nextDue(now, func(*DeliveryRow) bool { return true })
	return found, nil
}

func (r *DeliveryRow) takenOver(now time.Time) {
	r.Status = relay.StatusPending
	if r.Attempts > 0 {
		r.Status = relay.StatusFailed
	}
	r.NextAttemptAt, r.ErrorCode = now, relay.CodeTakeover
	r.LockedBy, r.LockedAt = "", time.Time{}
}

// nextDue is the time until the next row is due, negative when there is none. Of the rows that are due already only
// those count that the function names.
func (p part) nextDue(now time.Time, counts func(*DeliveryRow) bool) time.Duration {
	next := time.Duration(-1)
	for _, row := range p.live {
		if row.NextAttemptAt.IsZero() || !p.owns(row) {
			continue
		}
		in := max(row.NextAttemptAt.Sub(now), 0)
		if in == 0 && !counts(row) {
			continue
		}
		if next < 0 || in < next {
			next = in
		}
	}
	return next
}

// put writes a row over whatever stands there.
func (d *destination) put(row *DeliveryRow) {
	d.rows[row.Seq] = row
	i, found := slices.BinarySearchFunc(d.live, row.Seq, func(r *DeliveryRow, seq int64) int { return cmp.Compare(r.Seq, seq) })
	switch {
	case row.live() && found:
		d.live[i] = row
	case row.live():
		d.live = slices.Insert(d.live, i, row)
	case found:
		d.live = slices.Delete(d.live, i, i+1)
	}
}

// open: it is not settled.
func (r *DeliveryRow) open() bool {
	return r.Status != relay.StatusPublished && r.Status != relay.StatusDiscarded
}

func (r *DeliveryRow) live() bool {
	return r.open() || r.Status == relay.StatusDiscarded && !r.NextAttemptAt.IsZero()
}

// parked: it waits for its lane or endpoint.
func (r *DeliveryRow) parked() bool {
	return r.Status == relay.StatusPending && r.NextAttemptAt.IsZero()
}

func (r *DeliveryRow) lane() relay.LaneID { return relay.LaneID{Endpoint: r.Endpoint, Key: r.Key} }
