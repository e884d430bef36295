package ops

import (
	"context"
	"math"
	"slices"
)

// ReconcileProgress is how far each comparison has come, by the name of the comparison.
type ReconcileProgress map[string]comparedTo

// comparedTo is how far one comparison has come: everything up to Through was looked at and is well, but for Open, which is
// looked at again in each run: it was found, or was not settled yet. So a finding stays one until it is mended. Gaps are looked
// at once the cursor has them no longer: they were settled late, or are dead.
type comparedTo struct {
	Through int64     `json:"through"`
	Open    []int64   `json:"open,omitempty"`
	Gaps    gapRanges `json:"gaps,omitempty"`
}

const (
	reconcileChunk = 5_000  // rows of one statement
	reconcileOpen  = 10_000 // numbers that a comparison keeps open, and gaps
)

// sighting is a number that a comparison does not pass.
type sighting struct {
	seq int64
	row map[string]any // what is shown of the finding; nil: it is none yet, the delivery is not settled
}

// before is how far a comparison has come that looks at a number and the later ones anew.
func (c comparedTo) before(seq int64) comparedTo {
	return comparedTo{
		Through: min(c.Through, seq-1),
		Open:    slices.DeleteFunc(slices.Clone(c.Open), func(open int64) bool { return open >= seq }),
		Gaps:    c.Gaps.upTo(seq - 1),
	}
}

// A look compares the next rows above a number, at most reconcileChunk, up to another one. It returns how far it has come.
type look func(ctx context.Context, after, to int64) (seen []sighting, through int64, err error)

// among is the look at some numbers alone, wherever it passes.
func (l look) among(numbers gapRanges) look {
	return func(ctx context.Context, after, to int64) (seen []sighting, through int64, err error) {
		seen, through, err = l(ctx, after, to)
		return slices.DeleteFunc(seen, func(one sighting) bool { return !numbers.has(one.seq) }), through, err
	}
}

// scan is one comparison on its way.
type scan struct {
	look    look
	limit   int64
	gaps    gapRanges // of the cursor, as it stood before anything was looked at
	keep    bool      // what is open is remembered for the next run
	finding *Finding  // of the whole check, which other comparisons add to as well
	open    []int64
	cut     bool // it has stopped at a limit
}

// run looks again at what was open, all of it, then goes on to a number. It returns how far it has come.
func (s *scan) run(ctx context.Context, from comparedTo, to int64) (comparedTo, error) {
	again := runs(from.Open)
	for _, gap := range from.Gaps {
		if !s.gaps.holds(gap) {
			again = append(again, gap)
		}
	}
	again = joined(again)
	never := func() bool { return false }
	for _, r := range again.together(reconcileChunk) {
		if _, err := s.walk(ctx, s.look.among(again), r[0]-1, r[1], never); err != nil {
			return from, err
		}
	}
	through, err := s.walk(ctx, s.look, from.Through, min(to, s.watched()), func() bool {
		return s.finding.Count >= s.limit || len(s.open) >= reconcileOpen
	})
	if err != nil {
		return from, err
	}
	s.cut = through < to
	slices.Sort(s.open)
	reached := comparedTo{Through: through, Open: slices.Compact(s.open)}
	if s.keep {
		reached.Gaps = s.gaps.upTo(through)
	}
	return reached, nil
}

// watched is how far a run may go, so that no more gaps lie behind it than are kept.
func (s *scan) watched() int64 {
	if !s.keep || len(s.gaps) <= reconcileOpen {
		return math.MaxInt64
	}
	return s.gaps[reconcileOpen][0] - 1
}

func (s *scan) walk(ctx context.Context, look look, after, to int64, full func() bool) (through int64, err error) {
	for after < to && !full() {
		seen, through, err := look(ctx, after, to)
		if err != nil {
			return after, err
		}
		for _, one := range seen {
			s.take(one)
		}
		after = through
	}
	return after, nil
}

func (s *scan) take(one sighting) {
	if s.keep {
		s.open = append(s.open, one.seq)
	}
	if one.row == nil {
		return
	}
	s.finding.Count++
	if len(s.finding.Rows) < reconcileShown {
		s.finding.Rows = append(s.finding.Rows, one.row)
	}
}
