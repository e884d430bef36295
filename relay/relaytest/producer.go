package relaytest

import (
	"slices"
	"strconv"
	"time"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// Tx is a producer's transaction. It is for one goroutine.
type Tx struct {
	m        *Memory
	xid      uint64 // 0: it has not taken a number
	rows     []logged
	notifies bool
	ended    bool
}

// Begin starts a transaction, which takes no number yet. It must end with Commit or Rollback.
func (m *Memory) Begin() *Tx { return &Tx{m: m} }

// Enqueue commits the events in one transaction and returns their numbers.
func (m *Memory) Enqueue(events ...relay.Event) []int64 {
	tx := m.Begin()
	seqs := make([]int64, len(events))
	for i, e := range events {
		seqs[i] = tx.Insert(e)
	}
	tx.Commit()
	return seqs
}

// TakeXID takes the transaction's number, as the first write of a business row does. Insert does so by itself.
func (tx *Tx) TakeXID() {
	tx.m.mu.Lock()
	defer tx.m.mu.Unlock()
	tx.takeXID()
}

func (tx *Tx) takeXID() {
	if tx.ended {
		panic("relaytest: the transaction has ended")
	}
	if tx.xid != 0 {
		return
	}
	tx.xid = tx.m.takeXID()
	if tx.m.open == nil {
		tx.m.open = map[uint64]*Tx{}
	}
	tx.m.open[tx.xid] = tx
}

// Insert writes the event and returns its number: Event.Seq, or when that is 0 the next one. An AvailableIn counts from
// now; an ID or CreatedAt that is missing is made up.
func (tx *Tx) Insert(e relay.Event) int64 {
	tx.m.mu.Lock()
	defer tx.m.mu.Unlock()
	tx.takeXID()
	now := time.Now()
	row := logged{Event: e}
	if row.Seq == 0 {
		row.Seq = tx.m.seq + 1
	}
	tx.m.seq = max(tx.m.seq, row.Seq)
	if row.ID == "" {
		row.ID = "event-" + strconv.FormatInt(row.Seq, 10)
	}
	if row.CreatedAt.IsZero() {
		row.CreatedAt = now
	}
	if row.AvailableIn != 0 {
		row.availableAt = now.Add(row.AvailableIn)
	}
	tx.rows = append(tx.rows, row)
	tx.notifies = tx.notifies || tx.m.anyAsleep()
	return row.Seq
}

// Savepoint returns what RollbackTo takes.
func (tx *Tx) Savepoint() int { return len(tx.rows) }

// RollbackTo undoes what was inserted since the savepoint. The numbers are lost.
func (tx *Tx) RollbackTo(savepoint int) {
	tx.m.mu.Lock()
	defer tx.m.mu.Unlock()
	tx.rows = tx.rows[:savepoint]
}

// Commit makes the events visible and ends the transaction.
func (tx *Tx) Commit() {
	tx.m.mu.Lock()
	defer tx.m.mu.Unlock()
	tx.end()
	for _, row := range tx.rows {
		tx.m.log = slices.Insert(tx.m.log, search(tx.m.log, row.Seq), row)
	}
	if tx.notifies {
		tx.m.notify()
	}
}

// Rollback ends the transaction. Its numbers are lost. After Commit it does nothing.
func (tx *Tx) Rollback() {
	tx.m.mu.Lock()
	defer tx.m.mu.Unlock()
	if !tx.ended {
		tx.end()
	}
}

func (tx *Tx) end() {
	if tx.ended {
		panic("relaytest: the transaction has ended")
	}
	tx.ended = true
	delete(tx.m.open, tx.xid)
}
