package relaytest

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// CursorRow is a row of outbox_cursor. Zero times and empty strings stand for null.
type CursorRow struct {
	Position         int64
	Gaps             []relay.Range
	InFlightTo       int64
	AcquiredPosition int64
	Topics           relay.Topics
	Owner            string
	Epoch            int64
	ExpiresAt        time.Time
	Asleep           bool
	Pause            relay.Pause
	FailingSince     time.Time
	ErrorCode        string
	CrashCount       int
	SettleNumber     int64 // of the present lease
}

// DeliveryRow is a row of outbox_delivery. Zero times and empty strings stand for null.
type DeliveryRow struct {
	Seq      int64
	Status   relay.Status
	Attempts int
	Endpoint string
	// OpenLane tells whether partition_key is set, Key what it is.
	OpenLane      bool
	Key           string
	NextAttemptAt time.Time
	LastAttemptAt time.Time
	PublishedAt   time.Time
	LockedBy      string
	LockedAt      time.Time
	Receipt       string
	ErrorCode     string
	ErrorMessage  string
}

// Cursor returns the cursor of a destination, or of its first shard; ok is false when it has none.
func (m *Memory) Cursor(destination string) (row CursorRow, ok bool) {
	return m.ShardCursor(destination, relay.Shard{})
}

// ShardCursor returns the cursor of a shard; ok is false when there is none.
func (m *Memory) ShardCursor(destination string, shard relay.Shard) (row CursorRow, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.destinations[destination]
	if d == nil || shard.Number >= len(d.cursors) {
		return CursorRow{}, false
	}
	return d.cursors[shard.Number].clone(), true
}

// Cursors returns the cursors of a destination by shard, none when it has none.
func (m *Memory) Cursors(destination string) []CursorRow {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.destinations[destination]
	if d == nil {
		return nil
	}
	rows := make([]CursorRow, len(d.cursors))
	for i := range rows {
		rows[i] = d.cursors[i].clone()
	}
	return rows
}

func (c CursorRow) clone() CursorRow {
	c.Gaps = slices.Clone(c.Gaps)
	c.Topics = slices.Clone(c.Topics)
	return c
}

// Deliveries returns the ledger of a destination by number.
func (m *Memory) Deliveries(destination string) []DeliveryRow {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.destinations[destination]
	if d == nil {
		return nil
	}
	rows := make([]DeliveryRow, 0, len(d.rows))
	for _, row := range d.rows {
		rows = append(rows, *row)
	}
	slices.SortFunc(rows, func(a, b DeliveryRow) int { return cmp.Compare(a.Seq, b.Seq) })
	return rows
}

// Delivery returns one row of the ledger; ok is false when there is none.
func (m *Memory) Delivery(destination string, seq int64) (row DeliveryRow, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.destinations[destination]
	if d == nil || d.rows[seq] == nil {
		return DeliveryRow{}, false
	}
	return *d.rows[seq], true
}

// Events returns the committed events by number.
func (m *Memory) Events() []*relay.Event {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	events := make([]*relay.Event, len(m.log))
	for i := range m.log {
		events[i] = m.log[i].read(now)
	}
	return events
}

// Delete takes events out of the log, as somebody does who should not.
func (m *Memory) Delete(seqs ...int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.log = slices.DeleteFunc(m.log, func(l logged) bool { return slices.Contains(seqs, l.Seq) })
}

// Truncate empties the log and starts its numbers again, as TRUNCATE … RESTART IDENTITY does. Cursors stay.
func (m *Memory) Truncate() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.log, m.seq = nil, 0
}

// Discard is an operator's word that a delivery is not wanted any more. What is in flight or settled is refused.
func (m *Memory) Discard(destination string, seq int64) error {
	return m.operate(destination, seq, func(row *DeliveryRow) {
		row.Status = relay.StatusDiscarded
		row.NextAttemptAt = time.Time{}
		if row.OpenLane {
			row.NextAttemptAt = time.Now() // the relay lets the lane go on
		}
	})
}

// Retry is an operator's word that a delivery is tried again at once, with all its attempts. What is in flight or
// settled is refused.
func (m *Memory) Retry(destination string, seq int64) error {
	return m.operate(destination, seq, func(row *DeliveryRow) {
		row.Status, row.Attempts = relay.StatusPending, 0
		row.NextAttemptAt = time.Now()
	})
}

// Replay is an operator's word that what was published or discarded is delivered once more. Its endpoint is not known any more.
func (m *Memory) Replay(destination string, seq int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.destinations[destination]
	if d == nil || d.rows[seq] == nil {
		return fmt.Errorf("%s has no delivery row %d", destination, seq)
	}
	row, event := d.rows[seq], m.event(seq)
	if row.open() || event == nil {
		return fmt.Errorf("delivery %d of %s is %s", seq, destination, row.Status)
	}
	*row = DeliveryRow{Seq: seq, Status: relay.StatusPending, Key: event.Key, OpenLane: event.Key != "",
		NextAttemptAt: time.Now(), LastAttemptAt: row.LastAttemptAt}
	d.put(row)
	return nil
}

func (m *Memory) operate(destination string, seq int64, change func(*DeliveryRow)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.destinations[destination]
	if d == nil || d.rows[seq] == nil {
		return fmt.Errorf("%s has no delivery row %d", destination, seq)
	}
	row := d.rows[seq]
	if !row.open() || row.Status == relay.StatusPublishing {
		return fmt.Errorf("delivery %d of %s is %s", seq, destination, row.Status)
	}
	change(row)
	d.put(row)
	return nil
}

// SetPause pauses all shards of a destination as an operator does; the zero Pause resumes them.
func (m *Memory) SetPause(destination string, p relay.Pause) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.destinations[destination]
	if d == nil {
		return fmt.Errorf("%s has no cursor", destination)
	}
	for i := range d.cursors {
		d.cursors[i].Pause = p
	}
	return nil
}
