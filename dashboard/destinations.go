package dashboard

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/pillarbox-dev/pillarbox/ops"
	"github.com/pillarbox-dev/pillarbox/relay"
)

// destinationPage is one destination.
type destinationPage struct {
	destinationRow
	Charts    []titledChart
	Endpoints []endpointRow
	// More: there are more endpoints than are shown.
	More bool
}

// endpointRow is an endpoint and how it is.
type endpointRow struct {
	ops.Endpoint
	// Breaker is closed, open, paused, probing or draining; "": another relay knows.
	Breaker string
	Code    string // why it is not closed
}

// endpoints puts together the endpoints of a destination and what this process knows of their breakers. Those in trouble come
// first.
func (d *Dashboard) endpoints(ctx context.Context, row destinationRow) ([]endpointRow, error) {
	known, err := d.config.Endpoints(ctx, row.Destination)
	if err != nil {
		return nil, err
	}
	troubles := map[string]relay.EndpointStatus{}
	for _, e := range row.Troubles {
		troubles[e.Endpoint] = e
	}
	var rows []endpointRow
	for _, e := range known {
		r := endpointRow{Endpoint: e}
		trouble, inTrouble := troubles[e.Endpoint]
		switch {
		case inTrouble:
			r.Breaker, r.Code = trouble.State, trouble.Code
			delete(troubles, e.Endpoint)
		case row.Mine:
			r.Breaker = "closed"
		}
		rows = append(rows, r)
	}
	for _, e := range troubles { // beyond those that are listed
		rows = append(rows, endpointRow{Endpoint: ops.Endpoint{Endpoint: e.Endpoint, Enabled: true}, Breaker: e.State, Code: e.Code})
	}
	slices.SortStableFunc(rows, func(a, b endpointRow) int {
		if (a.Code == "") != (b.Code == "") {
			return cmp.Compare(b.Code, a.Code)
		}
		return cmp.Compare(a.Endpoint.Endpoint, b.Endpoint.Endpoint)
	})
	return rows, nil
}

// Title names the page.
func (p *destinationPage) Title() string { return p.Destination }

func (d *Dashboard) destinationList(r *http.Request) (any, error) {
	rows, _, err := d.destinations(r.Context())
	return rows, err
}

func (d *Dashboard) destination(r *http.Request) (any, error) {
	rows, _, err := d.destinations(r.Context())
	if err != nil {
		return nil, err
	}
	for _, row := range rows {
		if row.Destination == r.PathValue("destination") {
			page := &destinationPage{destinationRow: row, Charts: d.charts(row.Destination)}
			page.Endpoints, err = d.endpoints(r.Context(), row)
			page.More = len(page.Endpoints) >= ops.MaxEndpoints
			return page, err
		}
	}
	return nil, &statusError{http.StatusNotFound, "There is no such destination", "See the list of destinations."}
}

// steerDestination pauses a destination or lets it go on.
func (d *Dashboard) steerDestination(w http.ResponseWriter, r *http.Request) {
	name, what := r.PathValue("destination"), r.PathValue("what")
	a := action(r)
	var err error
	switch what {
	case "pause":
		if a.Reason == "" {
			err = wrong("The reason is missing", "Say why, for the next one who looks.")
			break
		}
		err = d.config.Ops.Pause(r.Context(), name, a)
	case "resume":
		err = d.config.Ops.Resume(r.Context(), name, a)
	default:
		err = ops.ErrNotFound
	}
	switch {
	case err == nil:
		d.status.forget()
		d.back(w, r, at("/destinations", name), what)
		return
	case errors.Is(err, ops.ErrNotPaused):
		err = &statusError{http.StatusConflict, "It is not paused", "Somebody may have been quicker."}
	case errors.Is(err, ops.ErrUnknownDestination):
		err = notStarted(http.StatusConflict)
	}
	status, n := d.refusal(err)
	if n == nil {
		d.fail(w, r, err)
		return
	}
	d.status.forget()
	d.show(w, r, view{name: "destination", nav: "destinations", load: d.destination}, status, n)
}

// relayRow is a process that has leases.
type relayRow struct {
	Name         string
	Here         bool
	Destinations []work
}

// work is a destination, or the shards of it that a relay works on.
type work struct{ Destination, Shards string }

// relaysPage is who works on what.
type relaysPage struct {
	Relays []relayRow
	Idle   []work // what nobody works on
	Owner  string
	Units  []unitRow
	// Known tells whether this process has told of its units.
	Known bool
}

// unitRow is a unit of this process.
type unitRow struct {
	relay.UnitStatus
	State string
}

func (d *Dashboard) relays(r *http.Request) (any, error) {
	status, err := d.status.get(r.Context())
	if err != nil {
		return nil, err
	}
	p := relaysPage{Owner: d.config.Owner, Known: d.config.Units != nil}
	held := map[string][]work{}
	for _, s := range status.Destinations {
		for owner, shards := range byOwner(s) {
			held[owner] = append(held[owner], work{s.Destination, shards})
		}
	}
	p.Idle = held[""]
	delete(held, "")
	for owner, destinations := range held {
		p.Relays = append(p.Relays, relayRow{owner, owner == d.config.Owner, destinations})
	}
	slices.SortFunc(p.Relays, func(a, b relayRow) int { return cmp.Compare(a.Name, b.Name) })
	if p.Known {
		for _, unit := range d.config.Units() {
			p.Units = append(p.Units, unitRow{unit, unitState(unit)})
		}
	}
	return p, nil
}

func unitState(u relay.UnitStatus) string {
	switch {
	case u.Err != nil, !u.Alive:
		return "failing"
	case u.Leased:
		return "leased"
	case u.Holder != "":
		return "standing by"
	}
	return "waiting"
}
