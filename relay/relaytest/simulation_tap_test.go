package relaytest_test

import (
	"context"
	"errors"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// heard is told what a relay notices.
func (w *world) heard(destination string, p *process, n relay.Notice) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reached[string(n.Kind)]++
	if n.Kind == relay.NoticePossibleDuplicate {
		w.noticed[destination] += n.Count
	}
	if n.Kind != relay.NoticeStoreError {
		w.noteLocked("", "%s of %s: %s %s %d", p.owner, destination, n.Kind, n.Code, n.Count)
	}
}

// tapped is the store as the oracle sees it: calls that arrive, and what they do.
type tapped struct {
	relay.Store
	w *world
}

func (w *world) tapped(s relay.Store) relay.Store {
	waker := s.(relay.Waker)
	return struct {
		relay.Store
		relay.Waker
	}{&tapped{s, w}, waker}
}

func (s *tapped) Acquire(ctx context.Context, r relay.AcquireRequest) (relay.Lease, bool, error) {
	before, _ := s.w.store.ShardCursor(r.Destination, r.Shard)
	lease, ok, err := s.Store.Acquire(ctx, r)
	if ok && lease.Unclean {
		s.w.takenOver(r.Destination, before.Owner, lease)
	}
	if ok {
		s.w.lookWhoShares(r)
	}
	return lease, ok, err
}

func (s *tapped) Settle(ctx context.Context, l relay.LeaseID, settlement relay.Settlement) (relay.Settled, error) {
	settled, err := s.Store.Settle(ctx, l, settlement)
	s.w.settledBy(l, settlement, err)
	return settled, err
}

func (s *tapped) Claim(ctx context.Context, l relay.LeaseID, c relay.Claim) (relay.Claimed, error) {
	claimed, err := s.Store.Claim(ctx, l, c)
	if err == nil {
		s.w.claimedBy(l, c, claimed)
	}
	return claimed, err
}

func (s *tapped) Recover(ctx context.Context, l relay.LeaseID, limit int) (relay.Recovered, error) {
	before := s.w.store.Deliveries(l.Destination)
	found, err := s.Store.Recover(ctx, l, limit)
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	if found.LanesCut {
		s.w.reached["lanes cut"]++
	}
	for _, row := range before {
		if f := s.w.numbers[row.Seq]; row.Status == relay.StatusPublishing && err == nil && l.Shard.Holds(f.key, f.seq) {
			s.w.track(f, l.Destination).lost++
		}
	}
	return found, err
}

// holds notes that an owner has an event in its hands.
func (w *world) holds(destination, owner string, seq int64) {
	key := destination + " " + owner
	if w.held[key] == nil {
		w.held[key] = map[int64]bool{}
	}
	w.held[key][seq] = true
}

func (w *world) takenOver(destination, from string, lease relay.Lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reached["taken over"]++
	w.noteLocked("", "%s takes %s, shard %s, over from %s: position %d gaps %v in flight to %d, crash count %d", lease.Owner,
		destination, lease.Shard, from, lease.Position, lease.Gaps, lease.InFlightTo, lease.CrashCount)
	w.lose(destination, from, lease.Shard)
}

// lose notes that the owner of a shard ended without a word, whatever it had in its hands.
func (w *world) lose(destination, owner string, shard relay.Shard) {
	held := w.held[destination+" "+owner]
	for seq := range held {
		if f := w.numbers[seq]; shard.Holds(f.key, seq) {
			w.track(f, destination).lost++
			delete(held, seq)
		}
	}
}

func (w *world) settledBy(l relay.LeaseID, s relay.Settlement, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if errors.Is(err, relay.ErrLeaseLost) {
		w.reached["lease lost at settle"]++
	}
	if err != nil {
		return
	}
	if s.Asleep {
		w.reached["asleep"]++
	}
	held := w.held[l.Destination+" "+l.Owner]
	for _, p := range s.Published {
		delete(held, p.Seq)
		w.noteSettled(l, p.Seq, relay.Row{Status: relay.StatusPublished, Attempts: 1})
	}
	for _, r := range s.Rows {
		if r.Status != relay.StatusPublishing {
			delete(held, r.Seq)
		}
		if r.Due && r.Status == relay.StatusPending && r.NextIn > 0 {
			w.reached["postponed"]++
		}
		w.noteSettled(l, r.Seq, r)
	}
}

func (w *world) noteSettled(l relay.LeaseID, seq int64, r relay.Row) {
	if f := w.numbers[seq]; f != nil {
		w.noteLocked(f.id, "%s settles %d at %s: %s, %d attempts, due %v in %v, open lane %v, %s",
			l.Owner, seq, l.Destination, r.Status, r.Attempts, r.Due, r.NextIn, r.OpenLane, r.ErrorCode)
	}
}

func (w *world) claimedBy(l relay.LeaseID, c relay.Claim, claimed relay.Claimed) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, d := range claimed.Deliveries {
		if d.Status != relay.StatusDiscarded {
			w.holds(l.Destination, l.Owner, d.Event.Seq)
		}
		if d.Attempts >= w.most[l.Owner+" "+l.Destination] { // it is quarantined without another one
			w.trackOf(l.Destination, d.Event.Seq).quarantined = true
		}
		w.noteLocked(d.Event.ID, "%s claims %d of %s, which was %s with %d attempts, due %v, charged %v",
			l.Owner, d.Event.Seq, l.Destination, d.Status, d.Attempts, c.Due, c.Charge)
	}
}
