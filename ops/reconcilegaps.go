package ops

import (
	"cmp"
	"slices"
)

// gapRanges are numbers, as first and last of those that follow each other: ascending, none touches another. A cursor's are those
// that it has passed without seeing them; their transactions may still commit, and then they are delivered late: see relay.Cursor.
type gapRanges [][2]int64

// joined returns ranges in order, those that overlap or touch as one.
func joined(ranges [][2]int64) (all gapRanges) {
	slices.SortFunc(ranges, func(a, b [2]int64) int { return cmp.Compare(a[0], b[0]) })
	for _, r := range ranges {
		if last := len(all) - 1; last >= 0 && all[last][1]+1 >= r[0] {
			all[last][1] = max(r[1], all[last][1])
			continue
		}
		all = append(all, r)
	}
	return all
}

// has tells whether a number lies in one of the ranges.
func (g gapRanges) has(seq int64) bool {
	i, found := g.search(seq)
	return found || i > 0 && g[i-1][1] >= seq
}

// holds tells whether a range is one of these, as it is.
func (g gapRanges) holds(r [2]int64) bool {
	i, found := g.search(r[0])
	return found && g[i] == r
}

func (g gapRanges) search(first int64) (int, bool) {
	return slices.BinarySearchFunc(g, first, func(r [2]int64, first int64) int { return cmp.Compare(r[0], first) })
}

// upTo returns what lies up to a number.
func (g gapRanges) upTo(last int64) (all gapRanges) {
	for _, r := range g {
		if r[0] > last {
			break
		}
		all = append(all, [2]int64{r[0], min(r[1], last)})
	}
	return all
}

// together returns ranges that cover these, few of them: those that lie within a span become one.
func (g gapRanges) together(span int64) (all gapRanges) {
	for _, r := range g {
		if last := len(all) - 1; last >= 0 && r[1]-all[last][0] < span {
			all[last][1] = r[1]
			continue
		}
		all = append(all, r)
	}
	return all
}

// runs puts numbers that follow each other together, as first and last.
func runs(numbers []int64) gapRanges {
	all := make([][2]int64, len(numbers))
	for i, n := range numbers {
		all[i] = [2]int64{n, n}
	}
	return joined(all)
}
