package postgres

import (
	"sync"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// places remembers for each lease where in the table its cursor row lies.
//
// A settle updates that row. As a rule the old versions are removed as it goes, by whoever finds the row through the index,
// and the row stays within one block. While some transaction stays open none of them can be removed: the row moves on from
// block to block, and the index leads to each of them first. After an hour of that, at 200 settles a second, finding the row
// takes 10 ms. So a row that has moved to another block is found by its place for a while. Then the index is tried again: if
// the transaction has ended meanwhile, that removes the old versions, and the row stays where it is.
type places struct {
	mu sync.Mutex
	of map[cursorKey]place
}

// cursorKey is the key of a cursor row.
type cursorKey struct {
	destination string
	shard       int
}

func keyOf(l relay.LeaseID) cursorKey { return cursorKey{l.Destination, l.Shard.Number} }

type place struct {
	tid  pgtype.TID
	left int // settles that may still go by it
}

// settlesByPlace is how many settles go by the place before the index is tried again.
const settlesByPlace = 1000

// find returns where the row lies; not valid: look it up by its key.
func (p *places) find(l relay.LeaseID) pgtype.TID {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known := p.of[keyOf(l)]; known.left > 0 {
		return known.tid
	}
	return pgtype.TID{}
}

// moved notes where a settle has left the row.
func (p *places) moved(l relay.LeaseID, to pgtype.TID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before, known := p.of[keyOf(l)]
	now := place{tid: to, left: max(0, before.left-1)}
	if known && before.left == 0 && before.tid.BlockNumber != to.BlockNumber {
		now.left = settlesByPlace
	}
	if p.of == nil {
		p.of = map[cursorKey]place{}
	}
	p.of[keyOf(l)] = now
}
