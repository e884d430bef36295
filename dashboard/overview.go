package dashboard

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/pillarbox-dev/pillarbox/dashboard/chart"
	"github.com/pillarbox-dev/pillarbox/ops"
)

// overview is what the first page shows.
type overview struct {
	LastSeq      int64
	Totals       totals
	Attention    []attention
	Destinations []destinationRow
	Charts       []titledChart
}

// totals are over all destinations.
type totals struct {
	Pending, Failed, Quarantined ops.Count
	Oldest                       ops.Seconds
	Rate                         float64
}

// attention is something that an operator should look at.
type attention struct {
	Kind string // bad or warn
	Name string // the destination
	Text string
	Link string // without Base
}

// titledChart is a chart with its caption. Chart is nil until there is something to draw.
type titledChart struct {
	Title, Unit string
	Chart       *chart.Chart
}

// destinationRow is a destination as the database and this process know it.
type destinationRow struct {
	ops.DestinationStatus
	State  string
	Recent ops.Recent
	here
	// Others are the relays besides this process that work on it.
	Others []string
}

// Breaker says how the endpoints are.
func (d destinationRow) Breaker() string {
	if !d.Mine {
		return "–"
	}
	if len(d.Troubles) == 0 {
		return "closed"
	}
	counts := map[string]int{}
	for _, e := range d.Troubles {
		counts[e.State]++
	}
	text := ""
	for _, state := range troubleStates {
		if n := counts[state]; n > 0 {
			if text != "" {
				text += ", "
			}
			if n > 1 {
				text += fmt.Sprint(n, " ")
			}
			text += state
		}
	}
	return text
}

// The states of a destination, in the words of `pillarbox status`.
const (
	stateRunning       = "running"
	statePaused        = "paused"
	stateFailing       = "failing"
	stateNoRelay       = "no relay"
	stateNotStarted    = "not started"
	stateNotConfigured = "not configured"
)

func (d *Dashboard) overview(r *http.Request) (any, error) {
	rows, lastSeq, err := d.destinations(r.Context())
	if err != nil {
		return nil, err
	}
	o := overview{LastSeq: lastSeq, Destinations: rows, Charts: d.charts("")}
	for _, row := range rows {
		o.Totals.add(row.DestinationStatus)
		o.Attention = append(o.Attention, row.attention(d.now())...)
	}
	return o, nil
}

func (t *totals) add(d ops.DestinationStatus) {
	t.Pending = sum(t.Pending, d.Pending)
	t.Failed = sum(t.Failed, d.Failed)
	t.Quarantined = sum(t.Quarantined, d.Quarantined)
	t.Oldest = max(t.Oldest, d.OldestPendingAge)
	t.Rate += d.RatePerSecond
}

func sum(a, b ops.Count) ops.Count {
	return ops.Count{N: a.N + b.N, Estimated: a.Estimated || b.Estimated, AtLeast: a.AtLeast || b.AtLeast}
}

// destinations puts together what the database and this process know. It also returns the log's last number.
func (d *Dashboard) destinations(ctx context.Context) ([]destinationRow, int64, error) {
	status, err := d.status.get(ctx)
	if err != nil {
		return nil, 0, err
	}
	configured := map[string]bool{}
	for _, name := range d.config.Destinations {
		configured[name] = true
	}
	known := d.here()
	var rows []destinationRow
	for _, s := range status.Destinations {
		row := destinationRow{DestinationStatus: s, State: state(s, len(configured) == 0 || configured[s.Destination])}
		if row.Recent, err = d.recent.get(ctx, s.Destination); err != nil {
			return nil, 0, err
		}
		if here := known[s.Destination]; here != nil {
			row.here = *here
		}
		row.Others = slices.DeleteFunc(s.Owners(), func(o string) bool { return o == d.config.Owner || row.Mine && o == row.Owner })
		rows = append(rows, row)
		delete(configured, s.Destination)
	}
	for _, name := range d.config.Destinations {
		if configured[name] {
			row := destinationRow{DestinationStatus: ops.DestinationStatus{Destination: name}, State: stateNotStarted}
			if here := known[name]; here != nil {
				row.here = *here
			}
			rows = append(rows, row)
		}
	}
	return rows, status.LastSeq, nil
}

func state(d ops.DestinationStatus, configured bool) string {
	switch {
	case d.Paused:
		return statePaused
	case d.LeaseOwner == "" && !configured:
		return stateNotConfigured
	case d.Unattended():
		return stateNoRelay
	case d.FailingSince != nil:
		return stateFailing
	}
	return stateRunning
}

// attention says what is wrong with a destination, the worst first.
func (d destinationRow) attention(now time.Time) (all []attention) {
	add := func(kind, link, format string, args ...any) {
		all = append(all, attention{kind, d.Destination, fmt.Sprintf(format, args...), link})
	}
	page := at("/destinations", d.Destination)
	if d.Err != nil {
		add("bad", page, "does not work here: %v", d.Err)
	}
	switch d.State {
	case stateNoRelay:
		if shards := byOwner(d.DestinationStatus)[""]; d.LeaseOwner != "" {
			add("bad", page, "has no relay that works on %s: the others take over within a lease’s time, or start one more.", shards)
			break
		}
		add("bad", page, "has no relay that works on it: start one with “pillarbox run”.")
	case stateNotStarted:
		add("warn", page, "is configured, and no relay has worked on it yet: start one with “pillarbox run”.")
	case statePaused:
		add("warn", page, "is paused by %s: %s", d.PausedBy, d.PausedReason)
	}
	if d.FailingSince != nil {
		failing := coarse(now.Sub(*d.FailingSince).Abs() + time.Second)
		add("bad", page, "has been failing for %s, the last time with %s.", failing, d.LastErrorCode)
	}
	if n := d.Quarantined; n.N > 0 {
		link := "/quarantine?destination=" + url.QueryEscape(d.Destination)
		if n.N == 1 && !n.AtLeast {
			add("bad", link, "has a quarantined delivery that waits for you.")
		} else {
			add("bad", link, "has %s quarantined deliveries that wait for you.", count(n))
		}
	}
	if d.CrashCount > 0 {
		add("bad", page, "has killed its relay %d times in a row without getting further.", d.CrashCount)
	}
	return all
}

// spans are what a chart can show: the shortest that has all samples, so that a young process has no line at the very edge.
var spans = [...]time.Duration{2 * time.Minute, 5 * time.Minute, samplesKept}

// charts draws the last minutes, of one destination or of all ("").
func (d *Dashboard) charts(only string) []titledChart {
	to := d.now()
	span, first := spans[0], d.samples.since()
	for _, s := range spans[1:] {
		if to.Sub(first) > span {
			span = s
		}
	}
	charts := []titledChart{
		{Title: "Throughput", Unit: "published per second"},
		{Title: "Backlog", Unit: "pending and failed"},
	}
	for i, value := range []func(sampled) float64{
		func(s sampled) float64 { return s.rate },
		func(s sampled) float64 { return s.pending },
	} {
		drawn, err := chart.Draw(d.samples.lines(value, only), to.Add(-span), to)
		if err != nil {
			d.config.Logger.Error("a chart cannot be drawn", "chart", charts[i].Title, "error", err)
		}
		charts[i].Chart = drawn
	}
	return charts
}
