package relay

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Relay carries events to destinations, with one unit for each shard of each of them.
type Relay struct {
	config Config
	units  []*unit
}

// New checks the configuration and returns a relay. All problems are reported in one error.
func New(c Config) (*Relay, error) {
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	r := &Relay{config: c}
	for _, d := range c.Destinations {
		r.units = append(r.units, newUnits(c, d)...)
	}
	return r, nil
}

// Run works until the context ends, then stops cleanly: it waits for what is in flight, settles, and gives its leases
// back. It returns nil after a clean stop. A destination that cannot go on without an operator leaves the others
// working; its error is logged, stands in Status, and is returned at the end.
func (r *Relay) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var listening sync.WaitGroup
	if w, ok := r.config.Store.(Waker); ok {
		listening.Go(func() { r.listen(ctx, w) })
	}
	errs := make([]error, len(r.units))
	var working sync.WaitGroup
	for i, u := range r.units {
		working.Go(func() {
			if errs[i] = u.run(ctx); errs[i] != nil {
				r.config.Logger.Error("a destination stopped", "error", errs[i])
			}
		})
	}
	working.Wait()
	cancel()
	listening.Wait()
	return errors.Join(errs...)
}

// listen passes notifications of commits on to the units.
func (r *Relay) listen(ctx context.Context, w Waker) {
	retry := newBackoff(time.Second, time.Minute)
	for ctx.Err() == nil {
		woken, err := w.Listen(ctx)
		if err != nil {
			if ctx.Err() == nil {
				r.config.Logger.Warn("cannot listen for commits; polling goes on", "error", fmt.Errorf("listen: %w", err))
			}
			sleep(ctx, retry.next())
			continue
		}
		retry.reset()
		for range woken {
			r.Wake()
		}
	}
}

// Wake tells a relay that is embedded in a service that something was committed. It never blocks.
func (r *Relay) Wake() {
	for _, u := range r.units {
		select {
		case u.wake <- struct{}{}:
		default:
		}
	}
}

// Status tells the state of every unit of this process, in the order of the configuration.
func (r *Relay) Status() []UnitStatus {
	all := make([]UnitStatus, len(r.units))
	for i, u := range r.units {
		all[i] = *u.status.Load()
		all[i].Alive = time.Since(all[i].seen) < r.config.Lease
	}
	return all
}

// UnitStatus is what a unit knows of itself.
type UnitStatus struct {
	Destination string
	Shard       Shard
	// Leased: this process delivers. Otherwise Holder does, or nobody.
	Leased bool
	Holder string
	// Alive: its loop has shown itself within the last lease time.
	Alive bool
	// Err is why it does not work: the store is away, the log was reset.
	Err      error
	Position int64
	// InFlight counts the deliveries in memory, Held the lanes that wait behind a failed delivery.
	InFlight, Held int
	Pause          Pause
	// Endpoints are those in trouble.
	Endpoints []EndpointStatus

	seen time.Time
}

// EndpointStatus is an endpoint that is in trouble.
type EndpointStatus struct {
	Endpoint string
	// State is open, paused or probing for a breaker, or draining while parked deliveries of an endpoint that is back
	// go first.
	State string
	Code  string
}
