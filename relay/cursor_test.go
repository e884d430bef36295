package relay

import (
	"math"
	"slices"
	"testing"
)

// page makes a Page as a store would: every number is wanted.
func page(horizon uint64, late []int64, seqs ...int64) Page {
	p := Page{GapSeqs: late, Seqs: seqs, Horizon: horizon}
	for _, seq := range append(slices.Clone(late), seqs...) {
		p.Events = append(p.Events, &Event{Seq: seq})
	}
	return p
}

func wantState(t *testing.T, c *Cursor, position int64, gaps ...Range) {
	t.Helper()
	gotPosition, gotGaps := c.State()
	if gotPosition != position || !slices.Equal(gotGaps, gaps) {
		t.Errorf("State() = %d, %v, want %d, %v", gotPosition, gotGaps, position, gaps)
	}
}

func TestCursorPositionStaysBelowWhatIsOpen(t *testing.T) {
	c := NewCursor(0, nil)
	c.Saw(page(9, nil, 1, 2, 3, 4))
	wantState(t, c, 0)
	c.Done(2)
	c.Done(3)
	wantState(t, c, 0)
	c.Done(1)
	wantState(t, c, 3)
	c.Done(4)
	wantState(t, c, 4)
}

func TestCursorFillsAGap(t *testing.T) {
	c := NewCursor(0, nil)
	c.Saw(page(9, nil, 1, 2, 5)) // 3 and 4 are not there yet
	for _, seq := range []int64{1, 2, 5} {
		c.Done(seq)
	}
	wantState(t, c, 5, Range{3, 4})

	after, gaps := c.Ask()
	if after != 5 || !slices.Equal(gaps, []Range{{3, 4}}) {
		t.Fatalf("Ask() = %d, %v, want 5 and the gap 3 to 4", after, gaps)
	}
	seen := c.Saw(page(9, []int64{4}, 6))
	if seen.Filled != 1 || seen.Dead != 0 {
		t.Errorf("Saw() = %+v, want one filled", seen)
	}
	// 4 is open although it lies below the position: a takeover must find it again.
	c.Done(6)
	wantState(t, c, 6, Range{3, 3}, Range{4, 4})
	c.Done(4)
	wantState(t, c, 6, Range{3, 3})
}

func TestCursorGapDiesOnlyWithProof(t *testing.T) {
	c := NewCursor(0, nil)
	c.Saw(page(50, nil, 2)) // 1 is missing
	c.Done(2)

	look := func(horizon uint64) int64 {
		t.Helper()
		c.Ask()
		return c.Saw(page(horizon, nil)).Dead
	}
	if dead := look(math.MaxUint64); dead != 0 {
		t.Fatalf("a gap without a bound died: %d", dead)
	}
	c.Bind(c.Mark(), 100)
	if dead := look(100); dead != 0 {
		t.Fatalf("a gap died at a horizon that is not above its bound")
	}
	if dead := look(101); dead != 1 {
		t.Fatalf("dead = %d at a horizon above the bound, want 1", dead)
	}
	wantState(t, c, 2)
}

// A settle whose xid was taken before a read noticed the gap proves nothing about it.
func TestCursorBoundMustBeYoungerThanTheGap(t *testing.T) {
	c := NewCursor(0, nil)
	c.Saw(page(50, nil, 1))
	mark := c.Mark() // the settle begins
	c.Ask()
	c.Saw(page(50, nil, 3)) // then the gap at 2 is noticed
	c.Bind(mark, 60)
	c.Ask()
	if seen := c.Saw(page(1000, nil)); seen.Dead != 0 {
		t.Fatalf("the gap died by the bound of an older settle")
	}
	if !c.Unbound() {
		t.Errorf("Unbound() = false with a gap that has no bound")
	}
}

func TestCursorInheritedGapsNeedANewBound(t *testing.T) {
	c := NewCursor(10, []Range{{4, 6}})
	c.Ask()
	if seen := c.Saw(page(math.MaxUint64, []int64{5})); seen.Dead != 0 || seen.Filled != 1 {
		t.Fatalf("Saw() = %+v, want one filled and none dead", seen)
	}
	c.Done(5)
	wantState(t, c, 10, Range{4, 4}, Range{6, 6})
	c.Bind(c.Mark(), 7)
	c.Ask()
	if seen := c.Saw(page(8, nil)); seen.Dead != 2 {
		t.Errorf("dead = %d, want 2", seen.Dead)
	}
	wantState(t, c, 10)
}

func TestCursorCutPageLeavesTheOtherGapsAlone(t *testing.T) {
	c := NewCursor(100, []Range{{10, 20}, {30, 40}})
	c.Bind(c.Mark(), 5)
	c.Ask()
	p := page(6, []int64{10, 11, 12})
	p.GapsCut = true
	if seen := c.Saw(p); seen.Dead != 0 || seen.Filled != 3 {
		t.Fatalf("Saw() = %+v", seen)
	}
	for _, seq := range []int64{10, 11, 12} {
		c.Done(seq)
	}
	wantState(t, c, 100, Range{13, 20}, Range{30, 40})
}

// Two events of one key commit one after the other, the first in a gap that is old by then. The read that sees the
// second must look at the gap too, or the second would be handed out first.
func TestCursorLooksAtEveryGapInEveryRead(t *testing.T) {
	c := NewCursor(0, nil)
	c.Saw(page(1, nil, 2, 4))
	for range 100 {
		if _, gaps := c.Ask(); !slices.Equal(gaps, []Range{{1, 1}, {3, 3}}) {
			t.Fatalf("Ask() = %v, want both gaps", gaps)
		}
		c.Saw(page(1, nil))
	}
}

func TestCursorKeepsGapsAboveTheFirstOpenNumberOut(t *testing.T) {
	c := NewCursor(0, nil)
	c.Saw(page(1, nil, 2, 5))
	c.Done(5)
	wantState(t, c, 1, Range{1, 1}) // a takeover reads again from 2 and finds 3 to 4 missing by itself
	c.Done(2)
	wantState(t, c, 5, Range{1, 1}, Range{3, 4})
}
