package dashboard

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/pillarbox-dev/pillarbox/ops"
	"github.com/pillarbox-dev/pillarbox/relay"
)

// pageSize is how many entries a list shows at once.
const pageSize = 50

// eventList is a part of the list of deliveries.
type eventList struct {
	Filter     filterForm
	Deliveries []ops.Delivery
	Pages      pages
}

// pages are the links around a part of a list.
type pages struct {
	// First leads back to the beginning; "": this is it. Next leads on; "": this is the end. Without Base.
	First, Next string
}

func (d *Dashboard) events(r *http.Request) (any, error) {
	return d.list(r, "/events", func(*ops.Filter) {})
}

// list reads a part of the list of deliveries that an address asks for. restrict narrows what it asks for.
func (d *Dashboard) list(r *http.Request, path string, restrict func(*ops.Filter)) (eventList, error) {
	query := r.URL.Query()
	f, problems := parseFilter(query)
	restrict(&f)
	names, err := d.names(r.Context())
	if err != nil {
		return eventList{}, err
	}
	l := eventList{Filter: newFilterForm(f, query, problems, names)}
	if len(problems) > 0 {
		return l, nil
	}
	found, err := d.config.Ops.List(r.Context(), f, ops.Page{Limit: pageSize, After: query.Get("after")})
	var refused *ops.RefusedError
	switch {
	case errors.Is(err, ops.ErrUnknownDestination):
		l.Filter.Problems = []string{"No relay has worked on the destination " + f.Destination + " yet: there is nothing to list."}
		return l, nil
	case errors.As(err, &refused):
		l.Filter.Problems = strings.Split(refused.Why, "\n")
		return l, nil
	case err != nil:
		return l, err
	}
	l.Deliveries, l.Pages = found.Deliveries, pagesOf(path, query, found.Next)
	return l, nil
}

// names are those of all destinations that there are to choose from.
func (d *Dashboard) names(ctx context.Context) ([]string, error) {
	status, err := d.status.get(ctx)
	if err != nil {
		return nil, err
	}
	var names []string
	known := map[string]bool{}
	for _, s := range status.Destinations {
		names, known[s.Destination] = append(names, s.Destination), true
	}
	for _, name := range d.config.Destinations {
		if !known[name] {
			names = append(names, name)
		}
	}
	return names, nil
}

// pagesOf makes the links of a list that is at path and was asked for with query.
func pagesOf(path string, query url.Values, next string) (p pages) {
	link := func(after string) string {
		q := url.Values{}
		for name, values := range query {
			if name != "after" && name != "done" && strings.Join(values, "") != "" {
				q[name] = values
			}
		}
		if after != "" {
			q.Set("after", after)
		}
		if len(q) == 0 {
			return path
		}
		return path + "?" + q.Encode()
	}
	if query.Get("after") != "" {
		p.First = link("")
	}
	if next != "" {
		p.Next = link(next)
	}
	return p
}

// find leads from what somebody has at hand, a number or an id, to the event.
func (d *Dashboard) find(w http.ResponseWriter, r *http.Request) {
	ref := strings.TrimSpace(r.URL.Query().Get("event"))
	if ref == "" {
		http.Redirect(w, r, d.config.Base+"/events", http.StatusSeeOther)
		return
	}
	http.Redirect(w, r, d.config.Base+at("/events", ref), http.StatusSeeOther)
}

// quarantined narrows a filter to what waits for an operator.
func quarantined(f *ops.Filter) { f.Statuses = []relay.Status{relay.StatusQuarantined} }
