// Package chart draws lines over time as SVG, for pages that allow neither scripts nor styles within them: colours come from the
// style sheet, by class. The numbers of the axes are not in the drawing but beside it, so that they stay legible at any width.
package chart

import (
	"bytes"
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"
	"time"

	gochart "github.com/wcharczuk/go-chart/v2"
)

// MaxLines is how many lines a chart has at most: more could not be told apart.
const MaxLines = 6

// The drawing's own measures. The page stretches it to the room there is.
const (
	width  = 600
	height = 160
)

// Point is a value at a time.
type Point struct {
	At    time.Time
	Value float64
}

// Line is the points of one thing, in the order of time.
type Line struct {
	Name   string
	Points []Point
}

// Chart is a drawing and what belongs beside it.
type Chart struct {
	// SVG is hidden from screen readers: the legend says the same in words.
	SVG template.HTML
	// Top and Middle are the values at the upper grid lines; the lowest is 0.
	Top, Middle float64
	From, To    time.Time
	Legend      []Entry
	// Left are the names of the lines that there was no room for.
	Left []string
}

// Minutes is how much time the chart shows.
func (c *Chart) Minutes() int { return int(c.To.Sub(c.From).Round(time.Minute) / time.Minute) }

// Entry explains a line.
type Entry struct {
	Name   string
	Class  string // line-0 …
	Latest float64
	Most   float64
}

// Draw draws lines between two times. Of more than MaxLines it takes those with the highest values. Lines with fewer than two
// points in between are not drawn; nil: there is none to draw.
func Draw(lines []Line, from, to time.Time) (*Chart, error) {
	entries, lines, left := choose(lines, from, to)
	if len(lines) == 0 {
		return nil, nil
	}
	most := 0.0
	for _, e := range entries {
		most = max(most, e.Most)
	}
	top := roundUp(most)
	graph := gochart.Chart{
		Width: width, Height: height,
		Background: plain("back"), Canvas: plain("back"),
		XAxis: gochart.XAxis{Style: gochart.Hidden(), Range: &gochart.ContinuousRange{
			Min: float64(from.UnixMilli()), Max: float64(to.UnixMilli()),
		}},
		YAxis:          gochart.YAxis{Style: gochart.Hidden(), Range: &gochart.ContinuousRange{Min: 0, Max: top}},
		YAxisSecondary: gochart.YAxis{Style: gochart.Hidden()},
	}
	for i, line := range lines {
		graph.Series = append(graph.Series, series(line, entries[i].Class, len(lines) == 1))
	}
	var svg bytes.Buffer
	if err := graph.Render(gochart.SVG, &svg); err != nil {
		return nil, fmt.Errorf("draw a chart: %w", err)
	}
	return &Chart{
		SVG: stretched(svg.String(), len(lines) == 1), Top: top, Middle: top / 2, From: from, To: to, Legend: entries, Left: left,
	}, nil
}

// choose clips lines to the time and takes the highest.
func choose(all []Line, from, to time.Time) (entries []Entry, lines []Line, left []string) {
	type candidate struct {
		line Line
		most float64
	}
	var candidates []candidate
	for _, line := range all {
		c := candidate{line: Line{Name: line.Name}}
		for _, p := range line.Points {
			if p.At.Before(from) || p.At.After(to) {
				continue
			}
			c.line.Points = append(c.line.Points, p)
			c.most = max(c.most, p.Value)
		}
		if len(c.line.Points) > 1 {
			candidates = append(candidates, c)
		}
	}
	if len(candidates) > MaxLines {
		slices.SortStableFunc(candidates, func(a, b candidate) int { return int(math.Copysign(1, b.most-a.most)) })
		for _, c := range candidates[MaxLines:] {
			left = append(left, c.line.Name)
		}
		candidates = candidates[:MaxLines]
	}
	for i, c := range candidates {
		lines = append(lines, c.line)
		entries = append(entries, Entry{
			Name: c.line.Name, Class: fmt.Sprintf("line-%d", i), Latest: c.line.Points[len(c.line.Points)-1].Value, Most: c.most,
		})
	}
	return entries, lines, left
}

// plain is a style that draws nothing of its own: with a class the library writes no style attribute, which the page's
// Content-Security-Policy would refuse.
func plain(class string) gochart.Style {
	return gochart.Style{ClassName: class, Padding: gochart.Box{IsSet: true}}
}

// series has colours only because the library draws nothing without.
func series(line Line, class string, filled bool) gochart.ContinuousSeries {
	style := plain(class)
	style.StrokeColor, style.StrokeWidth = gochart.ColorBlack, 2
	if filled {
		style.FillColor = gochart.ColorBlack
	}
	s := gochart.ContinuousSeries{Name: line.Name, Style: style}
	for _, p := range line.Points {
		s.XValues = append(s.XValues, float64(p.At.UnixMilli()))
		s.YValues = append(s.YValues, p.Value)
	}
	return s
}

// stretched lets the drawing take the width that it is given. Of a line that is filled the library draws the area first, in the
// same class.
func stretched(svg string, filled bool) template.HTML {
	const begin, line = "<svg ", `class="line-0 stroke fill"`
	if filled {
		svg = strings.Replace(svg, line, `class="area"`, 1)
	}
	return template.HTML(begin + `class="plot" preserveAspectRatio="none" aria-hidden="true" focusable="false" ` +
		strings.TrimPrefix(svg, begin)) // #nosec: numbers and our own classes
}

// roundUp returns the next of 1, 2, 5, 10, 20, 50 …, so that half of it is a good number as well.
func roundUp(value float64) float64 {
	if value <= 1 {
		return 1
	}
	unit := math.Pow(10, math.Floor(math.Log10(value)))
	for _, factor := range []float64{1, 2, 4, 6, 8, 10} {
		if top := factor * unit; top >= value {
			return top
		}
	}
	return 10 * unit
}
