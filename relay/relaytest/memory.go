package relaytest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// Memory is a store in memory: the log, the cursors and the ledger, with the transactions of PostgreSQL as far as
// a relay can tell. Its clock is time.Now, so testing/synctest rules it. The zero value is an empty, migrated
// database; it serves any number of relays and producers at once.
type Memory struct {
	mu  sync.Mutex
	xid uint64 // the last transaction number that was taken
	seq int64  // the last number of the log that was handed out
	// open holds the transactions that took a number and have not ended.
	open map[uint64]*Tx
	// log holds the committed events by number.
	log          []logged
	destinations map[string]*destination
	listeners    []chan struct{}
}

var (
	_ relay.Store = (*Memory)(nil)
	_ relay.Waker = (*Memory)(nil)
)

// logged is a row of outbox_event.
type logged struct {
	relay.Event
	availableAt time.Time // zero: null
}

// destination is the rows of outbox_cursor and of outbox_delivery that a destination has.
type destination struct {
	cursors []CursorRow // by shard
	rows    map[int64]*DeliveryRow
	// live are the rows that a claim may look at, by number: what is open, and what was discarded and is due.
	live []*DeliveryRow
}

// Read implements relay.Log.
func (m *Memory) Read(ctx context.Context, q relay.Query) (relay.Page, error) {
	if err := ctx.Err(); err != nil {
		return relay.Page{}, fmt.Errorf("read the log: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	r := reader{q: q, now: time.Now()}
	r.page.Horizon, r.page.Now = m.horizon(), r.now
	if r.gaps(m.log) {
		r.above(m.log)
	}
	return r.page, nil
}

// horizon is the lowest number of an open transaction; when there is none, the next one.
func (m *Memory) horizon() uint64 {
	lowest := m.xid + 1
	for xid := range m.open {
		lowest = min(lowest, xid)
	}
	return lowest
}

func (m *Memory) takeXID() uint64 {
	m.xid++
	return m.xid
}

// reader fills a page.
type reader struct {
	q     relay.Query
	now   time.Time
	page  relay.Page
	bytes int
}

// gaps takes the rows of the gaps and tells whether all of them were looked at.
func (r *reader) gaps(log []logged) bool {
	for _, gap := range r.q.Gaps {
		for i := search(log, gap.First); i < len(log) && log[i].Seq <= gap.Last; i++ {
			if len(r.page.GapSeqs) == r.q.Limit || !r.take(&log[i]) {
				r.page.GapsCut, r.page.Full = true, true
				return false
			}
			r.page.GapSeqs = append(r.page.GapSeqs, log[i].Seq)
		}
	}
	return true
}

// above takes the next rows above the position.
func (r *reader) above(log []logged) {
	for i := search(log, r.q.After); i < len(log); i++ {
		if log[i].Seq == r.q.After {
			continue
		}
		if len(r.page.Seqs) == r.q.Limit || !r.take(&log[i]) {
			r.page.Full = true
			return
		}
		r.page.Seqs = append(r.page.Seqs, log[i].Seq)
	}
	r.page.Full = len(r.page.Seqs) >= r.q.Limit
}

// take adds the event if it is wanted, and tells whether the page had room for it.
func (r *reader) take(row *logged) bool {
	if !r.q.Topics.Match(row.Topic) || !r.q.Shard.Holds(row.Key, row.Seq) {
		return true
	}
	if len(r.page.Events) > 0 && r.bytes+row.Size() > r.q.MaxBytes {
		return false
	}
	r.bytes += row.Size()
	r.page.Events = append(r.page.Events, row.read(r.now))
	return true
}

// read returns the event as a reader gets it at the given time.
func (l *logged) read(now time.Time) *relay.Event {
	e := l.Event
	if !l.availableAt.IsZero() {
		e.AvailableIn = l.availableAt.Sub(now)
	}
	return &e
}

// search returns the index of the first row with a number of at least seq.
func search(log []logged, seq int64) int {
	i, _ := slices.BinarySearchFunc(log, seq, func(l logged, seq int64) int { return cmp.Compare(l.Seq, seq) })
	return i
}

// event returns the row of the log with that number, nil when there is none.
func (m *Memory) event(seq int64) *logged {
	i, ok := slices.BinarySearchFunc(m.log, seq, func(l logged, seq int64) int { return cmp.Compare(l.Seq, seq) })
	if !ok {
		return nil
	}
	return &m.log[i]
}

// Listen implements relay.Waker.
func (m *Memory) Listen(ctx context.Context) (<-chan struct{}, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	c := make(chan struct{}, 1)
	m.listeners = append(m.listeners, c)
	context.AfterFunc(ctx, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.listeners = slices.DeleteFunc(m.listeners, func(l chan struct{}) bool { return l == c })
		close(c)
	})
	return c, nil
}

// anyAsleep tells whether a relay waits to be notified.
func (m *Memory) anyAsleep() bool {
	for _, d := range m.destinations {
		for i := range d.cursors {
			if d.cursors[i].Asleep {
				return true
			}
		}
	}
	return false
}

func (m *Memory) notify() {
	for _, c := range m.listeners {
		select {
		case c <- struct{}{}:
		default: // it has a notification that it has not looked at
		}
	}
}
