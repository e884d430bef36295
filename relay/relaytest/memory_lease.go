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
	c := &m.destination(r).cursor
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
		LeaseID:    relay.LeaseID{Destination: r.Destination, Owner: r.Owner, Epoch: c.Epoch, TTL: r.TTL},
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

// destination returns the destination, which is made when it is new.
func (m *Memory) destination(r relay.AcquireRequest) *destination {
	if d := m.destinations[r.Destination]; d != nil {
		return d
	}
	d := &destination{rows: map[int64]*DeliveryRow{}}
	if r.StartAtEnd && len(m.log) > 0 {
		d.cursor.Position = m.log[len(m.log)-1].Seq
		d.cursor.InFlightTo = d.cursor.Position
	}
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
	d, err := m.leased(l)
	if err != nil {
		return relay.Renewal{}, err
	}
	d.cursor.ExpiresAt = time.Now().Add(l.TTL)
	return relay.Renewal{LastSeq: m.seq, Pause: d.cursor.Pause}, nil
}

// Release implements relay.Leases.
func (m *Memory) Release(ctx context.Context, l relay.LeaseID) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("release the lease of %s: %w", l.Destination, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if d, err := m.leased(l); err == nil {
		d.cursor.Owner, d.cursor.ExpiresAt, d.cursor.Asleep = "", time.Time{}, false
	}
	return nil
}

// leased returns the destination if the lease is its present one.
func (m *Memory) leased(l relay.LeaseID) (*destination, error) {
	d := m.destinations[l.Destination]
	if d == nil || d.cursor.Epoch != l.Epoch || d.cursor.Owner != l.Owner {
		return nil, relay.ErrLeaseLost
	}
	return d, nil
}
