package dashboard

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pillarbox-dev/pillarbox/ops"
	"github.com/pillarbox-dev/pillarbox/relay"
)

// statuses in the order of a delivery's life.
var statuses = [...]relay.Status{
	relay.StatusPending, relay.StatusPublishing, relay.StatusPublished, relay.StatusFailed, relay.StatusQuarantined,
	relay.StatusDiscarded,
}

// minuteLayout is what the browser's field for a date and a time sends.
const minuteLayout = "2006-01-02T15:04"

// parseFilter reads a filter out of an address or a form. The names are those of ops.Filter in JSON. All problems come at once.
func parseFilter(v url.Values) (f ops.Filter, problems []string) {
	text := func(name string) string { return strings.TrimSpace(v.Get(name)) }
	f = ops.Filter{
		Destination: text("destination"), Key: text("partition_key"), AggregateType: text("aggregate_type"),
		AggregateID: text("aggregate_id"), EventType: text("event_type"), ErrorCode: text("last_error_code"),
		Endpoint: text("endpoint"),
	}
	for _, topic := range strings.FieldsFunc(v.Get("topics"), func(r rune) bool { return r == ',' || r == ' ' }) {
		f.Topics = append(f.Topics, topic)
	}
	for _, status := range v["statuses"] {
		switch s := relay.Status(status); {
		case status == "":
		case slices.Contains(statuses[:], s):
			f.Statuses = append(f.Statuses, s)
		default:
			problems = append(problems, fmt.Sprintf("There is no status %q: take one of the list.", status))
		}
	}
	moment := func(label, name string, into *time.Time) {
		t, err := parseTime(text(name))
		if err != nil {
			problems = append(problems, fmt.Sprintf("%s: %q is no time: write 2006-01-02T15:04, in UTC.", label, text(name)))
		}
		*into = t
	}
	moment("Since", "since", &f.Since)
	moment("Until", "until", &f.Until)
	seq := func(label, name string, into *int64) {
		if text(name) == "" {
			return
		}
		n, err := strconv.ParseInt(text(name), 10, 64)
		if err != nil || n < 1 {
			problems = append(problems, fmt.Sprintf("%s: %q is no number of the log: write 1 or more.", label, text(name)))
		}
		*into = n
	}
	seq("From number", "from_seq", &f.FromSeq)
	seq("To number", "to_seq", &f.ToSeq)
	return f, problems
}

func parseTime(text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{minuteLayout, "2006-01-02T15:04:05"} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, nil
		}
	}
	return time.Parse(time.RFC3339, text)
}

// filterForm is a filter as the fields of a form show it.
type filterForm struct {
	ops.Filter
	// Destinations and Statuses are what can be chosen.
	Choices  []string
	Problems []string
	// Open: some of the fields behind "More" is in use.
	Open bool
	// Asked is what was typed.
	Asked url.Values
}

func newFilterForm(f ops.Filter, asked url.Values, problems, names []string) filterForm {
	return filterForm{
		Filter: f, Choices: names, Problems: problems, Asked: asked,
		Open: len(problems) > 0 || f.AggregateType+f.AggregateID+f.EventType+f.Endpoint != "" || !f.Since.IsZero() ||
			!f.Until.IsZero() || f.FromSeq != 0 || f.ToSeq != 0,
	}
}

// tell shows what is wrong, and the fields that it may be about.
func (f *filterForm) tell(problems []string) {
	f.Problems, f.Open = problems, f.Open || len(problems) > 0
}

// AllStatuses are what can be chosen.
func (f filterForm) AllStatuses() []relay.Status { return statuses[:] }

// Has tells whether a status is chosen.
func (f filterForm) Has(s relay.Status) bool { return slices.Contains(f.Statuses, s) }

// Topic is the patterns in one field.
func (f filterForm) Topic() string { return strings.Join(f.Topics, ", ") }

// Moment is a bound of time as its field takes it.
func (f filterForm) Moment(name string) string {
	return minute(map[string]time.Time{"since": f.Since, "until": f.Until}[name])
}

// Number is a bound of the numbers, or what was typed instead of one.
func (f filterForm) Number(name string) string {
	if n := map[string]int64{"from_seq": f.FromSeq, "to_seq": f.ToSeq}[name]; n > 0 {
		return strconv.FormatInt(n, 10)
	}
	return f.Asked.Get(name)
}

func minute(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(minuteLayout)
}

// Any tells whether anything is restricted.
func (f filterForm) Any() bool { return len(filterValues(f.Filter)) > 0 }

// filterValues is the opposite of parseFilter.
func filterValues(f ops.Filter) url.Values {
	v := url.Values{}
	set := func(name, value string) {
		if value != "" {
			v.Set(name, value)
		}
	}
	set("destination", f.Destination)
	set("topics", strings.Join(f.Topics, ", "))
	set("partition_key", f.Key)
	set("aggregate_type", f.AggregateType)
	set("aggregate_id", f.AggregateID)
	set("event_type", f.EventType)
	set("last_error_code", f.ErrorCode)
	set("endpoint", f.Endpoint)
	set("since", minute(f.Since))
	set("until", minute(f.Until))
	for _, s := range f.Statuses {
		v.Add("statuses", string(s))
	}
	for name, n := range map[string]int64{"from_seq": f.FromSeq, "to_seq": f.ToSeq} {
		if n != 0 {
			v.Set(name, strconv.FormatInt(n, 10))
		}
	}
	return v
}
