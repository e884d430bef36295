package relay

import (
	"context"
)

// Relay carries events to destinations: one unit each.
type Relay struct {
	config Config
}

// New checks the configuration and returns a relay. All problems are reported in one error.
func New(c Config) (*Relay, error) {
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	return &Relay{config: c}, nil
}

// Run works until the context ends, then stops cleanly: it waits for what is in flight, settles, and gives its leases
// back. It returns nil after a clean stop, and an error when a destination cannot go on without an operator.
func (r *Relay) Run(ctx context.Context) error {
	<-ctx.Done() // the units come with unit.go
	return nil
}

// Wake tells a relay inside a service that something was committed.
func (r *Relay) Wake() {}

// Status tells the state of every unit of this process, for /readyz and the dashboard.
func (r *Relay) Status() []UnitStatus { return nil }

// UnitStatus is what a unit knows of itself.
type UnitStatus struct {
	Destination string
	// Leased: this process delivers. Otherwise Holder does, or nobody.
	Leased bool
	Holder string
	// Alive: its loop answered within the last lease time.
	Alive bool
	// Err is why it does not work: the store is away, the log was reset.
	Err       error
	Position  int64
	InFlight  int
	Held      int // lanes that wait behind a failed delivery
	Pause     Pause
	Endpoints []EndpointStatus // those whose breaker is not closed
}

// EndpointStatus is an endpoint that is in trouble.
type EndpointStatus struct {
	Endpoint string
	State    string // "open", "paused", "probing", "draining"
	Code     string
}
