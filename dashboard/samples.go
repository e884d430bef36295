package dashboard

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/pillarbox-dev/pillarbox/dashboard/chart"
	"github.com/pillarbox-dev/pillarbox/ops"
)

// samples are what the status was lately, for the charts. They are this process's own, and gone when it ends.
type samples struct {
	most int

	mu  sync.Mutex
	all []sample // in the order of time
}

type sample struct {
	at           time.Time
	destinations map[string]sampled
}

// sampled is what is kept of one destination.
type sampled struct{ rate, pending float64 }

func newSamples(most int) *samples { return &samples{most: most} }

// add keeps a status, unless there is one already that is hardly older.
func (s *samples) add(now time.Time, status ops.Status) {
	taken := sample{at: now, destinations: make(map[string]sampled, len(status.Destinations))}
	for _, d := range status.Destinations {
		taken.destinations[d.Destination] = sampled{rate: d.RatePerSecond, pending: float64(d.Pending.N + d.Failed.N)}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if last := len(s.all) - 1; last >= 0 && now.Sub(s.all[last].at) < sampleEvery*3/4 {
		return
	}
	if len(s.all) >= s.most {
		s.all = slices.Delete(s.all, 0, len(s.all)-s.most+1)
	}
	s.all = append(s.all, taken)
}

// since is the time of the first one; the zero time: there is none.
func (s *samples) since() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.all) == 0 {
		return time.Time{}
	}
	return s.all[0].at
}

// lines returns one line for each destination, by name.
func (s *samples) lines(value func(sampled) float64, only string) []chart.Line {
	s.mu.Lock()
	defer s.mu.Unlock()
	points := map[string][]chart.Point{}
	for _, taken := range s.all {
		for name, v := range taken.destinations {
			if only == "" || only == name {
				points[name] = append(points[name], chart.Point{At: taken.at, Value: value(v)})
			}
		}
	}
	var lines []chart.Line
	for name, p := range points {
		lines = append(lines, chart.Line{Name: name, Points: p})
	}
	slices.SortFunc(lines, func(a, b chart.Line) int { return cmp.Compare(a.Name, b.Name) })
	return lines
}
