package chart

import (
	"slices"
	"strings"
	"testing"
	"time"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// line has a point every five seconds, the last one at noon.
func line(name string, values ...float64) Line {
	l := Line{Name: name}
	for i, v := range values {
		l.Points = append(l.Points, Point{At: noon.Add(time.Duration(i-len(values)+1) * 5 * time.Second), Value: v})
	}
	return l
}

// TestDraw: the drawing has no style of its own, which the Content-Security-Policy would refuse, and nothing of a name in it.
func TestDraw(t *testing.T) {
	c, err := Draw([]Line{line("<b>", 1, 5, 3), line("other", 0, 0, 120)}, noon.Add(-15*time.Minute), noon)
	if err != nil {
		t.Fatal(err)
	}
	svg := string(c.SVG)
	for _, part := range []string{
		`class="plot"`, `preserveAspectRatio="none"`, `class="line-0 stroke`, `class="line-1 stroke`, `aria-hidden="true"`,
	} {
		if !strings.Contains(svg, part) {
			t.Errorf("the drawing has no %s: %s", part, svg)
		}
	}
	for _, part := range []string{"style", "<text", "<b>", "script", "NaN"} {
		if strings.Contains(svg, part) {
			t.Errorf("the drawing has %s: %s", part, svg)
		}
	}
	if c.Top != 200 || c.Middle != 100 {
		t.Errorf("got the scale %v, %v, want 200, 100", c.Top, c.Middle)
	}
	want := []Entry{{Name: "<b>", Class: "line-0", Latest: 3, Most: 5}, {Name: "other", Class: "line-1", Latest: 120, Most: 120}}
	if !slices.Equal(c.Legend, want) {
		t.Errorf("got the legend %v, want %v", c.Legend, want)
	}
}

func TestDrawChooses(t *testing.T) {
	from := noon.Add(-15 * time.Minute)
	old := line("old", 9, 9)
	for i := range old.Points {
		old.Points[i].At = old.Points[i].At.Add(-time.Hour)
	}
	if c, err := Draw([]Line{line("single", 4), old}, from, noon); c != nil || err != nil {
		t.Errorf("got %v, %v of lines without two points, want no chart", c, err)
	}
	var lines []Line
	for i, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		lines = append(lines, line(name, 1, float64(i)))
	}
	c, err := Draw(lines, from, noon)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Legend) != MaxLines || !slices.Equal(c.Left, []string{"a", "b"}) && !slices.Equal(c.Left, []string{"b", "a"}) {
		t.Errorf("got %d lines, and left %v, want %d and the lowest two left", len(c.Legend), c.Left, MaxLines)
	}
	c, err = Draw([]Line{line("idle", 0, 0, 0)}, from, noon)
	if err != nil || c.Top != 1 {
		t.Errorf("got %v, %v of a line at 0, want a scale up to 1", c, err)
	}
	if svg := string(c.SVG); strings.Count(svg, `class="area"`) != 1 || strings.Count(svg, `class="line-0 `) != 1 {
		t.Errorf("a line by itself has no area below it: %s", svg)
	}
}

func TestRoundUp(t *testing.T) {
	for _, c := range []struct{ value, want float64 }{
		{0, 1}, {0.2, 1}, {1, 1}, {1.1, 2}, {3, 4}, {5, 6}, {7, 8}, {9, 10}, {10, 10}, {11, 20}, {999, 1000}, {1001, 2000},
		{10_000_001, 20_000_000},
	} {
		if got := roundUp(c.value); got != c.want {
			t.Errorf("roundUp(%v): got %v, want %v", c.value, got, c.want)
		}
	}
}
