package api

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pillarbox-dev/pillarbox/ops"
	"github.com/pillarbox-dev/pillarbox/relay"
)

// query reads the parameters of an address. It gathers what is wrong; done returns it.
type query struct {
	values url.Values
	known  []string
	faults []fault
}

func (c *call) query() *query {
	values, err := url.ParseQuery(c.URL.RawQuery)
	q := &query{values: values}
	if err != nil {
		q.faults = append(q.faults, fault{Detail: "the part of the address after ? cannot be read: escape it"})
	}
	return q
}

func (q *query) bad(name, format string, args ...any) {
	q.faults = append(q.faults, fault{Parameter: name, Detail: fmt.Sprintf(format, args...)})
}

// all returns the values of a parameter that may be given several times.
func (q *query) all(name string) []string {
	q.known = append(q.known, name)
	for _, value := range q.values[name] {
		if value == "" {
			q.bad(name, "is empty: leave it out")
		}
	}
	return q.values[name]
}

func (q *query) text(name string) string {
	values := q.all(name)
	if len(values) > 1 {
		q.bad(name, "is given %d times: give it once", len(values))
	}
	return q.values.Get(name)
}

// number reads a whole number from 1 on; 0: it is not given.
func (q *query) number(name string) int64 {
	text := q.text(name)
	if text == "" {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 {
		q.bad(name, "wants a whole number from 1 on")
	}
	return n
}

func (q *query) moment(name string) time.Time {
	text := q.text(name)
	if text == "" {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		q.bad(name, "wants a time such as 2026-01-31T12:00:00Z; a + in it is written %%2B")
	}
	return t
}

// word reads one of a few words.
func (q *query) word(name string, words ...string) string {
	text := q.text(name)
	if text != "" && !slices.Contains(words, text) {
		q.bad(name, "can be %s", strings.Join(words, " or "))
	}
	return text
}

func (q *query) page() ops.Page {
	limit := q.number("limit")
	if limit > ops.MaxPage {
		q.bad("limit", "can be at most %d: go on with the next page", ops.MaxPage)
		limit = 0
	}
	return ops.Page{
		Limit: int(limit), After: q.text("after"), OldestFirst: q.word("order", "newest", "oldest") == "oldest",
	}
}

func (q *query) filter() ops.Filter {
	f := ops.Filter{
		Destination: q.text("destination"), Topics: relay.Topics(q.all("topic")), Key: q.text("partition_key"),
		AggregateType: q.text("aggregate_type"), AggregateID: q.text("aggregate_id"), EventType: q.text("event_type"),
		ErrorCode: q.text("last_error_code"), Endpoint: q.text("endpoint"),
		Since: q.moment("since"), Until: q.moment("until"), FromSeq: q.number("from_seq"), ToSeq: q.number("to_seq"),
	}
	for _, status := range q.all("status") {
		f.Statuses = append(f.Statuses, relay.Status(status))
	}
	return f
}

// done returns everything that is wrong, parameters that nobody has asked for included.
func (q *query) done() error {
	var unknown []string
	for name := range q.values {
		if !slices.Contains(q.known, name) {
			unknown = append(unknown, name)
		}
	}
	slices.Sort(unknown)
	for _, name := range unknown {
		q.bad(name, "is not known here")
	}
	if len(q.faults) == 0 {
		return nil
	}
	p := problem{Status: http.StatusBadRequest, Type: "malformed", Detail: "parameters of the address are wrong", Errors: q.faults}
	if len(unknown) > 0 {
		p.Hint = "there are none"
		if len(q.known) > 0 {
			p.Hint = "known here: " + strings.Join(q.known, ", ")
		}
	}
	return p
}
