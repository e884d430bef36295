package relaytest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// Acquire implements relay.Leases.
func (m *Memory) Acquire(ctx context.Context, r relay.AcquireRequest) (relay.Lease, bool, error) {
	if err := ctx.Err(); err != nil {
		return relay.Lease{}, false, fmt.Errorf("acquire the lease of %s: %w", r.Destination, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.destination(r)
	if n := len(d.cursors); n != r.Shard.Count() {
		return relay.Lease{}, false, fmt.Errorf("acquire the lease of %s: %w: it has %d, not %d",
			r.Destination, relay.ErrShards, n, r.Shard.Count())
	}
	c := &d.cursors[r.Shard.Number]
	now := time.Now()
	if c.Owner != "" && c.ExpiresAt.After(now) {
		held := relay.Lease{ExpiresIn: c.ExpiresAt.Sub(now), Pause: c.Pause}
		held.Owner = c.Owner
		return held, false, nil
	}
	unclean := c.Owner != ""
	if unclean && (c.Position == c.AcquiredPosition || c.CrashCount >= relay.IsolateAfter) {
		c.CrashCount++
	}
	c.Owner, c.ExpiresAt = r.Owner, now.Add(r.TTL)
	c.Epoch++
	c.SettleNumber = 0
	c.AcquiredPosition = c.Position
	c.Topics = slices.Clone(r.Topics)
	c.Asleep = false
	return relay.Lease{
		LeaseID:    relay.LeaseID{Destination: r.Destination, Shard: r.Shard, Owner: r.Owner, Epoch: c.Epoch, TTL: r.TTL},
		ExpiresIn:  r.TTL,
		Position:   c.Position,
		Gaps:       slices.Clone(c.Gaps),
		InFlightTo: c.InFlightTo,
		LastSeq:    m.seq,
		Unclean:    unclean,
		CrashCount: c.CrashCount,
		Pause:      c.Pause,
	}, true, nil
}

// destination returns the destination. One that is new is made, with the cursors of all its shards.
func (m *Memory) destination(r relay.AcquireRequest) *destination {
	if d := m.destinations[r.Destination]; d != nil {
		return d
	}
	begin := CursorRow{Topics: r.Topics}
	if r.StartAtEnd && len(m.log) > 0 {
		begin.Position = m.log[len(m.log)-1].Seq
		begin.InFlightTo = begin.Position
	}
	d := &destination{cursors: slices.Repeat([]CursorRow{begin}, r.Shard.Count()), rows: map[int64]*DeliveryRow{}}
	if m.destinations == nil {
		m.destinations = map[string]*destination{}
	}
	m.destinations[r.Destination] = d
	return d
}

// Renew implements relay.Leases.
func (m *Memory) Renew(ctx context.Context, l relay.LeaseID) (relay.Renewal, error) {
	if err := ctx.Err(); err != nil {
		return relay.Renewal{}, fmt.Errorf("renew the lease of %s: %w", l.Destination, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	p, err := m.leased(l)
	if err != nil {
		return relay.Renewal{}, err
	}
	p.cursor.ExpiresAt = time.Now().Add(l.TTL)
	return relay.Renewal{LastSeq: m.seq, Pause: p.cursor.Pause}, nil
}

// Release implements relay.Leases.
func (m *Memory) Release(ctx context.Context, l relay.LeaseID) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("release the lease of %s: %w", l.Destination, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if p, err := m.leased(l); err == nil {
		p.cursor.Owner, p.cursor.ExpiresAt, p.cursor.Asleep = "", time.Time{}, false
	}
	return nil
}

// part is a destination as the owner of a lease sees it: the cursor of its shard, and which rows are of it.
type part struct {
	*destination
	cursor *CursorRow
	owns   func(*DeliveryRow) bool
}

// leased returns the part that the lease is for, if it is the present one.
func (m *Memory) leased(l relay.LeaseID) (part, error) {
	d := m.destinations[l.Destination]
	if d == nil || l.Shard.Number >= len(d.cursors) {
		return part{}, relay.ErrLeaseLost
	}
	c := &d.cursors[l.Shard.Number]
	if c.Epoch != l.Epoch || c.Owner != l.Owner {
		return part{}, relay.ErrLeaseLost
	}
	return part{d, c, m.rowsOf(l.Shard)}, nil
}

// rowsOf returns what tells whether a row is of the shard: by its key, or that of its event when it stands in no lane's way. A
// row without either goes by its number.
func (m *Memory) rowsOf(shard relay.Shard) func(*DeliveryRow) bool {
	if shard.Whole() {
		return func(*DeliveryRow) bool { return true }
	}
	return func(row *DeliveryRow) bool {
		key := row.Key
		if e := m.event(row.Seq); e != nil && !row.OpenLane {
			key = e.Key
		}
		return shard.Holds(key, row.Seq)
	}
}
