package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// report is what a command found, in the order in which it is shown.
type report struct {
	figures []figure
	context []fact
}

// figure is one measured number: the median of its samples, one for each round.
type figure struct {
	key     string
	samples []float64
	target  target
}

// fact is something beside the measurements that is needed to understand them.
type fact struct {
	key   string
	value any
}

// target is what a figure must reach: at least, or at most, a limit. The zero value asks for nothing.
type target struct {
	atLeast bool
	limit   float64
	set     bool
}

func atLeast(limit float64) target { return target{true, limit, true} }
func atMost(limit float64) target  { return target{false, limit, true} }

func (t target) met(value float64) bool {
	return !t.set || t.atLeast && value >= t.limit || !t.atLeast && value <= t.limit
}

func (t target) String() string {
	if !t.set {
		return ""
	}
	sign := "<= "
	if t.atLeast {
		sign = ">= "
	}
	return sign + formatNumber(t.limit)
}

// add puts a sample to the figure of that key, and makes the figure when it is the first.
func (r *report) add(key string, sample float64) {
	for i := range r.figures {
		if r.figures[i].key == key {
			r.figures[i].samples = append(r.figures[i].samples, sample)
			return
		}
	}
	r.figures = append(r.figures, figure{key: key, samples: []float64{sample}})
}

// want sets the target of a figure that is there.
func (r *report) want(key string, t target) {
	for i := range r.figures {
		if r.figures[i].key == key {
			r.figures[i].target = t
		}
	}
}

// note puts a fact to the context.
func (r *report) note(key string, value any) { r.context = append(r.context, fact{key, value}) }

// about notes what every report says of its circumstances.
func (r *report) about(command string, s *session) {
	r.note("command", command)
	r.note("rounds", s.rounds)
	r.note("postgresql", s.version)
	r.note("settings", s.settingsText())
	r.note("cpus", runtime.NumCPU())
	r.note("go", runtime.Version())
	r.note("date", s.started.UTC().Format(time.DateOnly))
}

// round keeps what can be told apart: whole numbers from 100 on, else two more digits.
func round(v float64) float64 {
	if math.Abs(v) >= 100 {
		return math.Round(v)
	}
	return math.Round(v*1000) / 1000
}

// formatNumber writes a number for a person, with separators between the thousands.
func formatNumber(v float64) string {
	text := strconv.FormatFloat(round(v), 'f', -1, 64)
	whole, fraction, _ := strings.Cut(text, ".")
	sign := ""
	if strings.HasPrefix(whole, "-") {
		sign, whole = "-", whole[1:]
	}
	for at := len(whole) - 3; at > 0; at -= 3 {
		whole = whole[:at] + "," + whole[at:]
	}
	if fraction != "" {
		whole += "." + fraction
	}
	return sign + whole
}

func (f figure) value() float64 { return round(median(f.samples)) }

// verdict is "ok" or "missed" where there is a target.
func (f figure) verdict() string {
	switch {
	case !f.target.set:
		return ""
	case f.target.met(f.value()):
		return "ok"
	}
	return "missed"
}

// spread shows the least and the greatest sample, when there are several.
func (f figure) spread() string {
	if len(f.samples) < 2 {
		return ""
	}
	least, greatest := math.Inf(1), math.Inf(-1)
	for _, sample := range f.samples {
		least, greatest = min(least, sample), max(greatest, sample)
	}
	return formatNumber(least) + " .. " + formatNumber(greatest)
}

func (r *report) writeTable(w io.Writer) error {
	rows := "figure\tmedian\trounds\ttarget\t\t\n"
	for _, f := range r.figures {
		rows += strings.Join([]string{f.key, formatNumber(f.value()), f.spread(), f.target.String(), f.verdict()}, "\t") + "\t\n"
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, err := io.WriteString(table, rows)
	if err := errors.Join(err, table.Flush()); err != nil {
		return err
	}
	context := "\n"
	for _, f := range r.context {
		context += fmt.Sprintf("%s: %v\n", f.key, f.value)
	}
	_, err = io.WriteString(w, context)
	return err
}

// writeJSON prints one object: a key for each figure, then the context, "missed" (the keys whose target is missed) and
// "samples" (for each figure, the value of each round).
func (r *report) writeJSON(w io.Writer) error {
	var fields object
	missed, samples := []string{}, object{}
	for _, f := range r.figures {
		fields = append(fields, fact{f.key, f.value()})
		rounded := make([]float64, len(f.samples))
		for i, sample := range f.samples {
			rounded[i] = round(sample)
		}
		samples = append(samples, fact{f.key, rounded})
		if f.verdict() == "missed" {
			missed = append(missed, f.key)
		}
	}
	fields = append(fields, r.context...)
	fields = append(fields, fact{"missed", missed}, fact{"samples", samples})
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(fields)
}

// object is a JSON object that keeps its order.
type object []fact

func (o object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, f := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		key, err := json.Marshal(f.key)
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(f.value)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.key, err)
		}
		b.Write(key)
		b.WriteByte(':')
		b.Write(value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}
