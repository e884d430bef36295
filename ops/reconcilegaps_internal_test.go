package ops

import (
	"slices"
	"testing"
)

// The gaps of two shards overlap; what is near to each other is looked at together.
func TestGapRanges(t *testing.T) {
	g := joined([][2]int64{{1, 100}, {200, 200}, {50, 60}, {101, 110}, {202, 5_300}, {5_400, 5_401}})
	if want := (gapRanges{{1, 110}, {200, 200}, {202, 5_300}, {5_400, 5_401}}); !slices.Equal(g, want) {
		t.Fatalf("joined = %v, want %v", g, want)
	}
	for seq, want := range map[int64]bool{0: false, 1: true, 70: true, 110: true, 111: false, 200: true, 201: false, 5_401: true, 5_402: false} {
		if got := g.has(seq); got != want {
			t.Errorf("has(%d) = %v, want %v", seq, got, want)
		}
	}
	if !g.holds([2]int64{200, 200}) || g.holds([2]int64{1, 100}) {
		t.Errorf("%v holds 200: %v, and 1 to 100: %v; want the first alone", g, g.holds([2]int64{200, 200}), g.holds([2]int64{1, 100}))
	}
	if got, want := g.upTo(203), (gapRanges{{1, 110}, {200, 200}, {202, 203}}); !slices.Equal(got, want) {
		t.Errorf("up to 203: %v, want %v", got, want)
	}
	if got, want := g.together(1_000), (gapRanges{{1, 200}, {202, 5_300}, {5_400, 5_401}}); !slices.Equal(got, want) {
		t.Errorf("together: %v, want %v", got, want)
	}
	if got, want := runs([]int64{1, 2, 3, 7}), (gapRanges{{1, 3}, {7, 7}}); !slices.Equal(got, want) {
		t.Errorf("runs = %v, want %v", got, want)
	}
}
