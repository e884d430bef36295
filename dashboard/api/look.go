package api

import (
	"github.com/pillarbox-dev/pillarbox/ops"
	"github.com/pillarbox-dev/pillarbox/relay"
)

// status is that of the outbox, with the destinations that no relay has worked on yet.
type status struct {
	ops.Status
	NotStarted []string `json:"not_started"`
}

func (a *api) status(c *call) (any, error) {
	if err := c.query().done(); err != nil {
		return nil, err
	}
	now, err := a.Ops.Status(c.Context())
	return status{now, a.unstarted(now)}, err
}

// relays are who works on what: the leases out of the database, and this process's own units.
type relays struct {
	Leases []lease `json:"leases"`
	// Owner is this process's name in leases; "": it has no relay.
	Owner string `json:"owner"`
	Units []unit `json:"units"`
}

// lease is that of a destination, or of one of its shards.
type lease struct {
	Destination string `json:"destination"`
	Shard       int    `json:"shard"`
	Owner       string `json:"owner"` // "": nobody works on it
}

type unit struct {
	Destination string     `json:"destination"`
	Shard       int        `json:"shard"`
	Leased      bool       `json:"leased"`
	Holder      string     `json:"holder"`
	Alive       bool       `json:"alive"`
	Error       string     `json:"error,omitempty"`
	Position    int64      `json:"position"`
	InFlight    int        `json:"in_flight"`
	Held        int        `json:"held"`
	Paused      bool       `json:"paused"`
	Endpoints   []endpoint `json:"endpoints"` // those in trouble
}

type endpoint struct {
	Endpoint string `json:"endpoint"`
	State    string `json:"state"`
	Code     string `json:"code,omitempty"`
}

func (a *api) relays(c *call) (any, error) {
	if err := c.query().done(); err != nil {
		return nil, err
	}
	now, err := a.Ops.Status(c.Context())
	if err != nil {
		return nil, err
	}
	all := relays{Owner: a.Owner, Leases: []lease{}, Units: []unit{}}
	for _, d := range now.Destinations {
		if len(d.Shards) == 0 {
			all.Leases = append(all.Leases, lease{Destination: d.Destination, Owner: d.LeaseOwner})
		}
		for _, s := range d.Shards {
			all.Leases = append(all.Leases, lease{d.Destination, s.Shard, s.LeaseOwner})
		}
	}
	for _, u := range a.Units() {
		all.Units = append(all.Units, unitOf(u))
	}
	return all, nil
}

func unitOf(u relay.UnitStatus) unit {
	shown := unit{
		Destination: u.Destination, Shard: u.Shard.Number, Leased: u.Leased, Holder: u.Holder, Alive: u.Alive, Position: u.Position,
		InFlight: u.InFlight, Held: u.Held, Paused: u.Pause != (relay.Pause{}), Endpoints: []endpoint{},
	}
	if u.Err != nil {
		shown.Error = u.Err.Error()
	}
	for _, e := range u.Endpoints {
		shown.Endpoints = append(shown.Endpoints, endpoint{e.Endpoint, e.State, e.Code})
	}
	return shown
}

func (a *api) health(c *call) (any, error) {
	if err := c.query().done(); err != nil {
		return nil, err
	}
	return a.Ops.Health(c.Context())
}

func (a *api) recent(c *call) (any, error) {
	if err := c.query().done(); err != nil {
		return nil, err
	}
	return a.Ops.Recent(c.Context(), c.PathValue("destination"))
}

// tasks are what processes do on a schedule. A state may hold rows of the user's own queries.
type tasks struct {
	Tasks []ops.TaskStatus `json:"tasks"`
}

func (a *api) tasks(c *call) (any, error) {
	if err := c.query().done(); err != nil {
		return nil, err
	}
	all, err := a.Ops.Tasks(c.Context())
	m := a.maskFor(c.who)
	for i := range all {
		all[i].State = m.JSON(all[i].State)
	}
	return tasks{append([]ops.TaskStatus{}, all...)}, err
}
