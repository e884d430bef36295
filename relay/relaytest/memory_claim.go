package relaytest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// Claim implements relay.Ledger.
func (m *Memory) Claim(ctx context.Context, l relay.LeaseID, c relay.Claim) (relay.Claimed, error) {
	if err := ctx.Err(); err != nil {
		return relay.Claimed{}, fmt.Errorf("claim deliveries of %s: %w", l.Destination, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	p, err := m.leased(l)
	if err != nil {
		return relay.Claimed{}, err
	}
	now := time.Now()
	var claimed relay.Claimed
	rows, blocked := p.eligible(c, now)
	claimed.Blocked = blocked && c.Lane != nil
	bytes := 0
	for _, row := range rows {
		event := m.event(row.Seq)
		if event == nil { // somebody deleted it
			event = &logged{Event: relay.Event{Seq: row.Seq, Key: row.Key}}
		}
		if len(claimed.Deliveries) == c.Limit || len(claimed.Deliveries) > 0 && bytes+event.Size() > c.MaxBytes {
			claimed.More = true
			break
		}
		bytes += event.Size()
		open := row.claim(c.Charge, l.Owner, event.read(now), now)
		if m.event(row.Seq) == nil {
			row.missing()
			open.Status = relay.StatusDiscarded
		}
		claimed.Deliveries = append(claimed.Deliveries, open)
		p.put(row)
	}
	claimed.More = claimed.More || len(claimed.Deliveries) == c.Limit
	due, _ := p.eligible(relay.Claim{Due: true}, now)
	claimed.NextDue = p.nextDue(now, func(row *DeliveryRow) bool { return slices.Contains(due, row) })
	return claimed, nil
}

// eligible returns the rows that the claim may take, in its order, and whether open rows that it asks for have to wait.
//
// Within a lane no row is taken before one with a lower number: what a claim does not ask for, and what its
// order would put later, blocks what follows in the lane.
func (p part) eligible(c relay.Claim, now time.Time) (rows []*DeliveryRow, blocked bool) {
	closed := map[relay.LaneID]bool{}
	latest := map[relay.LaneID]time.Time{}
	for _, row := range p.live {
		if !p.owns(row) {
			continue
		}
		asked := row.askedFor(c)
		lane := row.lane()
		overtakes := row.OpenLane && (closed[lane] || c.Due && row.NextAttemptAt.Before(latest[lane]))
		if asked && row.ready(now) && !overtakes {
			rows = append(rows, row)
			latest[lane] = row.NextAttemptAt
			continue
		}
		blocked = blocked || asked && row.open()
		if row.OpenLane && row.open() {
			closed[lane] = true
		}
	}
	if c.Due {
		slices.SortStableFunc(rows, func(a, b *DeliveryRow) int {
			return cmp.Or(a.NextAttemptAt.Compare(b.NextAttemptAt), cmp.Compare(a.Seq, b.Seq))
		})
	}
	return rows, blocked
}

func (r *DeliveryRow) askedFor(c relay.Claim) bool {
	switch {
	case c.Lane != nil:
		return r.OpenLane && r.lane() == *c.Lane
	case c.Endpoint != nil:
		return r.Endpoint == *c.Endpoint && r.NextAttemptAt.IsZero() && r.Seq > c.After
	default:
		return !r.NextAttemptAt.IsZero()
	}
}

func (r *DeliveryRow) ready(now time.Time) bool {
	return r.parked() || !r.NextAttemptAt.IsZero() && !r.NextAttemptAt.After(now)
}

// claim makes the row the owner's and returns it as it was before.
func (r *DeliveryRow) claim(charge bool, owner string, e *relay.Event, now time.Time) relay.Open {
	before := relay.Open{Event: e, Endpoint: r.Endpoint, Attempts: r.Attempts, Status: r.Status, LastErrorCode: r.ErrorCode}
	r.NextAttemptAt = time.Time{}
	if r.Status == relay.StatusDiscarded {
		r.OpenLane, r.Key = false, ""
		return before
	}
	r.Status, r.LockedBy, r.LockedAt = relay.StatusPublishing, owner, now
	if charge {
		r.Attempts++
	}
	return before
}

// missing takes a row whose event is gone from the log out of the flow. What an operator has discarded stays so.
func (r *DeliveryRow) missing() {
	if r.Status != relay.StatusDiscarded {
		r.Status = relay.StatusQuarantined
	}
	r.LockedBy, r.LockedAt, r.OpenLane, r.Key = "", time.Time{}, false, ""
	r.ErrorCode = relay.CodeEventMissing
}
