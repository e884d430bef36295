package dashboard

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/pillarbox-dev/pillarbox/ops"
)

// quarantine is a part of the list of what waits for an operator.
type quarantine struct {
	eventList
	// Waiting is how many there are of the chosen destination, or of all.
	Waiting ops.Count
	// Query is the filter as a job's form takes it, without Base.
	Query string
}

func (d *Dashboard) quarantine(r *http.Request) (any, error) {
	list, err := d.list(r, "/quarantine", quarantined)
	if err != nil {
		return nil, err
	}
	status, err := d.status.get(r.Context())
	if err != nil {
		return nil, err
	}
	q := quarantine{eventList: list, Query: filterValues(list.Filter.Filter).Encode()}
	list.Filter.Statuses = nil // of what the form can take away
	q.Filter = list.Filter
	for _, s := range status.Destinations {
		if chosen := list.Filter.Destination; chosen == "" || chosen == s.Destination {
			q.Waiting = sum(q.Waiting, s.Quarantined)
		}
	}
	return q, nil
}

// pick names a delivery in the value of a checkbox.
func pick(d ops.Delivery) string {
	return url.Values{"d": {d.Destination}, "s": {strconv.FormatInt(d.Seq, 10)}, "v": {d.Version}}.Encode()
}

func parsePick(text string) (ops.Target, error) {
	v, err := url.ParseQuery(text)
	if err != nil {
		return ops.Target{}, err
	}
	seq, err := strconv.ParseInt(v.Get("s"), 10, 64)
	return ops.Target{Destination: v.Get("d"), Seq: seq, Version: v.Get("v")}, err
}

// actOnMany retries or discards the deliveries that were picked on a page, each as it was seen.
func (d *Dashboard) actOnMany(w http.ResponseWriter, r *http.Request) {
	picked := r.PostForm["pick"]
	if r.PostForm.Get("all") != "" {
		picked = r.PostForm["shown"]
	}
	what := r.PostForm.Get("do")
	do := map[string]func(ops.Target, ops.Action) error{
		"retry": func(t ops.Target, a ops.Action) error { _, err := d.config.Ops.Retry(r.Context(), t, a); return err },
		"discard": func(t ops.Target, a ops.Action) error {
			_, err := d.config.Ops.Discard(r.Context(), t, a)
			return err
		},
	}[what]
	n := &notice{Kind: "bad"}
	switch {
	case do == nil:
		n.Text = "Nothing was done: choose “Retry” or “Discard”."
	case len(picked) == 0:
		n.Text = "Nothing was done: pick at least one delivery."
	case len(picked) > pageSize:
		n.Text = fmt.Sprintf("Nothing was done: a page acts on at most %d deliveries. Start a job for more.", pageSize)
	case what == "discard" && action(r).Reason == "":
		n.Text = "Nothing was done: say why they are discarded, for the next one who looks."
	default:
		n = d.each(picked, action(r), map[string]string{"retry": "set going again", "discard": "discarded"}[what], do)
	}
	status := http.StatusOK
	if n.Kind == "bad" {
		status = http.StatusUnprocessableEntity
	}
	d.show(w, r, view{name: "quarantine", title: "Quarantine", load: d.quarantine}, status, n)
}

// each acts on one after the other, and tells which could not be done.
func (d *Dashboard) each(picked []string, a ops.Action, word string, do func(ops.Target, ops.Action) error) *notice {
	did := 0
	n := &notice{}
	for _, text := range picked {
		target, err := parsePick(text)
		if err == nil {
			err = do(target, a)
		}
		if err == nil {
			did++
			continue
		}
		why := err.Error()
		var conflict *ops.ConflictError
		if errors.As(err, &conflict) {
			why = fmt.Sprintf("it has changed since you looked, and is %s now", conflict.Now.Status)
		}
		n.Lines = append(n.Lines, fmt.Sprintf("Event %d to %s was left alone: %s.", target.Seq, target.Destination, why))
	}
	n.Kind, n.Text = "good", fmt.Sprintf("%d of %d %s.", did, len(picked), word)
	if len(n.Lines) > 0 {
		n.Kind = "bad"
	}
	return n
}
