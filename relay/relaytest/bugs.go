package relaytest

import (
	"cmp"
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// A Bug breaks a promise of the relay by wrapping what it works with. The simulation runs with each of them, to show that it
// would notice. Fields that are nil wrap nothing.
type Bug struct {
	Name string
	// Database wraps the store where the calls arrive, Store where the relay makes them: what gets lost on the way lies
	// between.
	Database    func(*Memory) relay.Store
	Store       func(relay.Store) relay.Store
	Destination func(relay.Destination) relay.Destination
	Observer    func(relay.Observer) relay.Observer
}

// Bugs returns all of them. A value may wrap several stores and destinations.
func Bugs() []Bug {
	return []Bug{
		{Name: "no fencing", Database: func(m *Memory) relay.Store { return &unfenced{m} }},
		{Name: "uncommitted events are read", Database: func(m *Memory) relay.Store { return &dirtyReads{m} }},
		{Name: "seq > last: gaps are ignored", Store: store(func(s *buggyStore) {
			s.query = func(q *relay.Query) { q.Gaps = nil }
		})},
		{Name: "a gap is taken for dead too early", Store: store(func(s *buggyStore) {
			s.page = func(p *relay.Page) { p.Horizon = math.MaxUint64 }
		})},
		{Name: "gaps are dropped at settle", Store: store(func(s *buggyStore) {
			s.settle = func(_ int64, s *relay.Settlement) { s.Gaps = nil }
		})},
		{Name: "the position moves over what is not settled", Store: store(func(s *buggyStore) {
			s.settle = func(highest int64, s *relay.Settlement) { s.Position = max(s.Position, highest) }
		})},
		{Name: "a clean stop forgets what is in flight", Store: store(func(s *buggyStore) {
			s.settle = func(highest int64, s *relay.Settlement) {
				if s.InFlightTo == s.Position { // the last one
					s.Position, s.InFlightTo = max(s.Position, highest), max(s.Position, highest)
				}
			}
		})},
		{Name: "a retry is dropped", Store: store(func(s *buggyStore) {
			s.settle = func(_ int64, s *relay.Settlement) {
				s.Rows = slices.DeleteFunc(slices.Clone(s.Rows), func(r relay.Row) bool { return r.Status == relay.StatusFailed })
			}
		})},
		{Name: "a quarantined event does not hold its lane", Store: store(func(s *buggyStore) {
			s.settle = func(_ int64, s *relay.Settlement) {
				s.Rows = slices.Clone(s.Rows)
				for i := range s.Rows {
					if s.Rows[i].Status == relay.StatusQuarantined {
						s.Rows[i].OpenLane = false
					}
				}
			}
		})},
		{Name: "parked events are forgotten at a takeover", Store: store(func(s *buggyStore) {
			s.recover = func(r *relay.Recovered) { r.Lanes, r.Endpoints = nil, nil }
		})},
		{Name: "what a former owner had in flight is forgotten at a takeover", Store: store(func(s *buggyStore) {
			s.recover = func(r *relay.Recovered) { r.Above = nil }
		})},
		{Name: "a takeover frees what other shards have in flight", Database: func(m *Memory) relay.Store { return &freesAll{m} }},
		{Name: "a reshard begins at the fastest position", Database: func(m *Memory) relay.Store { return &fastest{m} }},
		{Name: "lanes ignore the key", Store: store(func(s *buggyStore) {
			s.event = func(e *relay.Event) { e.Key = "" }
		})},
		{Name: "claims come out of order", Store: store(func(s *buggyStore) {
			s.claim = func(c *relay.Claimed) { slices.Reverse(c.Deliveries) }
		})},
		{Name: "a renewal that failed is taken for one that did not", Store: store(func(s *buggyStore) {
			s.renewed = func(error) error { return nil }
		})},
		{Name: "an unknown outcome is taken as published", Destination: outcomes(func(o *relay.Outcome) {
			if o.Uncertain {
				*o = relay.Outcome{Kind: relay.Published}
			}
		})},
		{Name: "an outage is charged", Destination: outcomes(func(o *relay.Outcome) {
			if o.Kind == relay.Unavailable {
				o.Kind, o.Trouble = relay.Retry, true
			}
		})},
		{Name: "a shutdown is charged", Destination: outcomes(func(o *relay.Outcome) {
			if o.Kind == relay.Released {
				*o = relay.Outcome{Kind: relay.Reject, Code: "CANCELLED"}
			}
		})},
		{Name: "duplicates are silent", Observer: func(o relay.Observer) relay.Observer { return silent{o} }},
	}
}

// unfenced lets every call through as if it came from the present owner of the lease.
type unfenced struct{ *Memory }

func (u *unfenced) present(l relay.LeaseID) relay.LeaseID {
	if c, ok := u.ShardCursor(l.Destination, l.Shard); ok && c.Owner != "" {
		l.Owner, l.Epoch = c.Owner, c.Epoch
	}
	return l
}

func (u *unfenced) Renew(ctx context.Context, l relay.LeaseID) (relay.Renewal, error) {
	return u.Memory.Renew(ctx, u.present(l))
}

func (u *unfenced) Settle(ctx context.Context, l relay.LeaseID, s relay.Settlement) (relay.Settled, error) {
	return u.Memory.Settle(ctx, u.present(l), s)
}

func (u *unfenced) Recover(ctx context.Context, l relay.LeaseID, limit int) (relay.Recovered, error) {
	return u.Memory.Recover(ctx, u.present(l), limit)
}

func (u *unfenced) Claim(ctx context.Context, l relay.LeaseID, c relay.Claim) (relay.Claimed, error) {
	return u.Memory.Claim(ctx, u.present(l), c)
}

// dirtyReads shows what open transactions have inserted.
type dirtyReads struct{ *Memory }

func (d *dirtyReads) Read(_ context.Context, q relay.Query) (relay.Page, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	log := slices.Clone(d.log)
	for _, tx := range d.open {
		log = append(log, tx.rows...)
	}
	slices.SortFunc(log, func(a, b logged) int { return cmp.Compare(a.Seq, b.Seq) })
	r := reader{q: q, now: time.Now()}
	r.page.Horizon, r.page.Now = d.horizon(), r.now
	if r.gaps(log) {
		r.above(log)
	}
	return r.page, nil
}

// freesAll takes the rows of all shards for those of the one that is taken over.
type freesAll struct{ *Memory }

func (f *freesAll) Recover(ctx context.Context, l relay.LeaseID, limit int) (relay.Recovered, error) {
	found, err := f.Memory.Recover(ctx, l, limit)
	if err != nil {
		return found, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, row := range f.destinations[l.Destination].live {
		if row.Status == relay.StatusPublishing {
			row.takenOver(time.Now())
		}
	}
	return found, nil
}

// fastest lets all shards begin where the fastest one stood.
type fastest struct{ *Memory }

func (f *fastest) Reshard(destination string, shards int) error {
	furthest := int64(0)
	for _, c := range f.Cursors(destination) {
		furthest = max(furthest, c.Position)
	}
	if err := f.Memory.Reshard(destination, shards); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	cursors := f.destinations[destination].cursors
	for i := range cursors {
		cursors[i].Position = furthest
	}
	return nil
}

// silent tells nobody of possible duplicates.
type silent struct{ relay.Observer }

func (s silent) Noticed(destination string, n relay.Notice) {
	if n.Kind != relay.NoticePossibleDuplicate {
		s.Observer.Noticed(destination, n)
	}
}

// outcomes returns a wrapper that changes outcomes.
func outcomes(change func(*relay.Outcome)) func(relay.Destination) relay.Destination {
	return func(d relay.Destination) relay.Destination {
		return wrapDestination(d, func(ctx context.Context, batch []relay.Delivery) []relay.Outcome {
			outcomes := d.Deliver(ctx, batch)
			for i := range outcomes {
				change(&outcomes[i])
			}
			return outcomes
		})
	}
}

// store returns a wrapper that changes what goes to and fro.
func store(plant func(*buggyStore)) func(relay.Store) relay.Store {
	return func(s relay.Store) relay.Store {
		b := &buggyStore{Store: s}
		plant(b)
		return keepWaker(b, s)
	}
}

// buggyStore changes calls and answers by the functions that are not nil.
type buggyStore struct {
	relay.Store
	query   func(*relay.Query)
	page    func(*relay.Page)
	event   func(*relay.Event)
	settle  func(highest int64, s *relay.Settlement)
	recover func(*relay.Recovered)
	claim   func(*relay.Claimed)
	renewed func(error) error

	mu      sync.Mutex
	highest int64 // the highest number that was read
}

func (b *buggyStore) Read(ctx context.Context, q relay.Query) (relay.Page, error) {
	if b.query != nil {
		b.query(&q)
	}
	page, err := b.Store.Read(ctx, q)
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := len(page.Seqs); n > 0 {
		b.highest = max(b.highest, page.Seqs[n-1])
	}
	if b.page != nil {
		b.page(&page)
	}
	for i, e := range page.Events {
		page.Events[i] = b.changed(e)
	}
	return page, err
}

// changed returns the event as the relay is to see it.
func (b *buggyStore) changed(e *relay.Event) *relay.Event {
	if b.event == nil {
		return e
	}
	changed := *e
	b.event(&changed)
	return &changed
}

func (b *buggyStore) Renew(ctx context.Context, l relay.LeaseID) (relay.Renewal, error) {
	renewal, err := b.Store.Renew(ctx, l)
	return renewal, b.renewal(err)
}

func (b *buggyStore) Settle(ctx context.Context, l relay.LeaseID, s relay.Settlement) (relay.Settled, error) {
	if b.settle != nil {
		b.mu.Lock()
		highest := b.highest
		b.mu.Unlock()
		b.settle(highest, &s)
	}
	settled, err := b.Store.Settle(ctx, l, s)
	return settled, b.renewal(err)
}

// renewal is the error of a call that renews the lease.
func (b *buggyStore) renewal(err error) error {
	if b.renewed == nil {
		return err
	}
	return b.renewed(err)
}

func (b *buggyStore) Recover(ctx context.Context, l relay.LeaseID, limit int) (relay.Recovered, error) {
	found, err := b.Store.Recover(ctx, l, limit)
	if b.recover != nil {
		b.recover(&found)
	}
	return found, err
}

func (b *buggyStore) Claim(ctx context.Context, l relay.LeaseID, c relay.Claim) (relay.Claimed, error) {
	claimed, err := b.Store.Claim(ctx, l, c)
	if b.claim != nil {
		b.claim(&claimed)
	}
	for i := range claimed.Deliveries {
		claimed.Deliveries[i].Event = b.changed(claimed.Deliveries[i].Event)
	}
	return claimed, err
}
