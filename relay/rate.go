package relay

import "time"

// rate counts how much of what happened lately was bad, in a window of rateParts parts.
type rate struct {
	window time.Duration
	parts  [rateParts]struct{ bad, all int }
	at     time.Time // the start of the current part
	i      int
}

const rateParts = 10

func (r *rate) add(now time.Time, bad bool) {
	part := r.window / rateParts
	if now.Sub(r.at) >= r.window {
		r.clear(now)
	}
	for now.Sub(r.at) >= part {
		r.at = r.at.Add(part)
		r.i = (r.i + 1) % rateParts
		r.parts[r.i] = struct{ bad, all int }{}
	}
	r.parts[r.i].all++
	if bad {
		r.parts[r.i].bad++
	}
}

// exceeds tells whether at least part of at least least was bad.
func (r *rate) exceeds(part float64, least int) bool {
	bad, all := 0, 0
	for _, p := range r.parts {
		bad += p.bad
		all += p.all
	}
	return all >= least && float64(bad) >= part*float64(all)
}

func (r *rate) clear(now time.Time) {
	r.parts = [rateParts]struct{ bad, all int }{}
	r.at = now
}
