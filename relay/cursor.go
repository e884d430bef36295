package relay

import "slices"

// Range is a run of sequence numbers, both ends included.
type Range struct{ First, Last int64 }

// Cursor knows how far a destination has come in the log, and what it must not forget on the way. It is pure: no I/O, no
// clock.
//
// Numbers are handed out in order but commit in any order, so a number that is missing when it is passed is a gap: it
// may still commit, or its transaction rolled back. A gap is dead when a later look proves that its transaction has ended
// and its row is still not there:
//
//	the gap's transaction took its xid, then its number   (the column default sees to that)
//	a higher number was committed, and a read noticed the gap
//	a settle began after that read and took its own xid X, so X is above the gap's xid     (Mark, Bind)
//	a later read's horizon is above X: every transaction up to X had ended before that read's snapshot,
//	so a row that it does not see will never be seen      (Saw)
//
// Order within a key is kept because its writers are serialised by the row they update: whoever sees the later event sees
// the earlier one. So every read looks at all gaps, and a gap that turns visible is handed out before the new rows of the
// same page. To leave an old gap out of a read would hand out the later event of a key before the earlier one.
//
// What was handed out stays open until Done. The position that State returns lies below the first open number.
type Cursor struct {
	next int64 // the highest number that was passed
	gaps []gap // ascending, all below next
	mark uint64

	open []slot             // handed out above the position at that time; ascending
	late map[int64]struct{} // handed out of gaps and still open
}

type gap struct {
	Range
	noticed uint64 // the mark of the read that noticed it
	bound   uint64 // 0: none yet
}

type slot struct {
	seq  int64
	done bool
}

// MaxGaps bounds the ranges that are kept. When a transaction stays open while others roll back, ranges gather; at the bound
// nothing new is read until it ends. Each costs 16 bytes in every settle and an index probe in every read.
const MaxGaps = 20_000

// NewCursor returns a cursor as the last settle left it. Bounds are never stored, so every inherited gap needs a new one.
func NewCursor(position int64, gaps []Range) *Cursor {
	c := &Cursor{next: position, late: map[int64]struct{}{}}
	for _, r := range gaps {
		c.gaps = append(c.gaps, gap{Range: r})
	}
	return c
}

// Next is the highest number that was passed.
func (c *Cursor) Next() int64 { return c.next }

// Full says that no more gaps can be kept: only gaps may be read.
func (c *Cursor) Full() bool { return len(c.gaps) >= MaxGaps }

// Ask returns the position to read above, and the gaps to look at.
func (c *Cursor) Ask() (after int64, gaps []Range) {
	for _, g := range c.gaps {
		gaps = append(gaps, g.Range)
	}
	return c.next, gaps
}

// Seen is what a page changed.
type Seen struct {
	Filled int   // rows that came out of gaps
	Dead   int64 // numbers that were proved to be rolled back
}

// Saw takes in the page that was read for the last Ask. Its wanted events are open from now on.
func (c *Cursor) Saw(p Page) Seen {
	seen := Seen{Filled: len(p.GapSeqs)}
	seen.Dead = c.sawGaps(p)
	c.mark++
	before := c.next
	for _, seq := range p.Seqs {
		if seq > c.next+1 {
			c.gaps = append(c.gaps, gap{Range: Range{c.next + 1, seq - 1}, noticed: c.mark})
		}
		c.next = seq
	}
	for _, e := range p.Events {
		if e.Seq > before {
			c.open = append(c.open, slot{seq: e.Seq})
		} else {
			c.late[e.Seq] = struct{}{}
		}
	}
	return seen
}

// sawGaps takes out of the gaps what was visible, and drops what is dead.
func (c *Cursor) sawGaps(p Page) (dead int64) {
	if len(c.gaps) == 0 {
		return 0
	}
	visible := p.GapSeqs
	looked := c.next // up to here the gaps were looked at
	if p.GapsCut {
		looked = 0
		if n := len(visible); n > 0 {
			looked = visible[n-1]
		}
	}
	kept := make([]gap, 0, len(c.gaps))
	missing := func(g gap, r Range) { // r of g is still not visible
		switch {
		case r.First > r.Last:
		case g.bound != 0 && p.Horizon > g.bound:
			dead += r.Last - r.First + 1
		default:
			g.Range = r
			kept = append(kept, g)
		}
	}
	for _, g := range c.gaps {
		if g.First > looked {
			kept = append(kept, g)
			continue
		}
		first := g.First
		for len(visible) > 0 && visible[0] <= g.Last {
			missing(g, Range{first, visible[0] - 1})
			first = visible[0] + 1
			visible = visible[1:]
		}
		missing(g, Range{first, min(g.Last, looked)})
		if rest := max(first, looked+1); rest <= g.Last {
			g.Range = Range{rest, g.Last}
			kept = append(kept, g)
		}
	}
	c.gaps = kept
	return dead
}

// Mark is taken when a settle begins, for the Bind that follows it.
func (c *Cursor) Mark() uint64 { return c.mark }

// Bind gives a bound to the gaps that had been noticed when the settle that brought it began.
func (c *Cursor) Bind(mark, bound uint64) {
	if bound == 0 {
		return
	}
	for i := range c.gaps {
		if g := &c.gaps[i]; g.bound == 0 && g.noticed <= mark {
			g.bound = bound
		}
	}
}

// Unbound says that there are gaps without a bound: a settle is wanted even if there is nothing else to write.
func (c *Cursor) Unbound() bool {
	return slices.ContainsFunc(c.gaps, func(g gap) bool { return g.bound == 0 })
}

// Done says that the next settle accounts for the number: an outcome, or a row of its own in the ledger.
func (c *Cursor) Done(seq int64) {
	if _, ok := c.late[seq]; ok {
		delete(c.late, seq)
		return
	}
	i, found := slices.BinarySearchFunc(c.open, seq, func(s slot, seq int64) int {
		switch {
		case s.seq < seq:
			return -1
		case s.seq > seq:
			return 1
		}
		return 0
	})
	if found {
		c.open[i].done = true
	}
}

// State returns what a settle has to write: a position below every open number, and the numbers up to it that are
// still owed, being gaps or open out of gaps.
func (c *Cursor) State() (position int64, gaps []Range) {
	for len(c.open) > 0 && c.open[0].done {
		c.open = c.open[1:]
	}
	position = c.next
	if len(c.open) > 0 {
		position = c.open[0].seq - 1
	}
	for i := range c.gaps {
		if c.gaps[i].First > position {
			break
		}
		gaps = append(gaps, c.gaps[i].Range)
	}
	if len(c.late) == 0 {
		return position, gaps
	}
	for seq := range c.late {
		if seq <= position {
			gaps = append(gaps, Range{seq, seq})
		}
	}
	slices.SortFunc(gaps, func(a, b Range) int {
		if a.First < b.First {
			return -1
		}
		return 1
	})
	return position, gaps
}
