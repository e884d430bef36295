package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/pillarbox-dev/pillarbox/examples/linkostar/platform"
	"github.com/pillarbox-dev/pillarbox/outbox"
	"github.com/pillarbox-dev/pillarbox/relay"
)

// seams are where a test takes the place of a part, to let the process die there. Nil leaves the part as it is.
type seams struct {
	enqueuer  func(platform.Enqueuer) platform.Enqueuer
	committed func()
	onSettle  func(platform.OnSettle) platform.OnSettle
	relay     func(*relay.Config)
}

// newService returns the platform. committed is called after each commit.
func newService(d database, s seams, committed func()) (*platform.Platform, error) {
	box, err := outbox.New(d.dialect, outbox.Options{})
	if err != nil {
		return nil, err
	}
	var enqueuer platform.Enqueuer = box
	if s.enqueuer != nil {
		enqueuer = s.enqueuer(box)
	}
	if s.committed != nil {
		committed = s.committed
	}
	return platform.New(d.DB, d.dialect, enqueuer, committed), nil
}

// carrier is the relay and what belongs to it: inside the service's process, or beside it.
type carrier struct {
	relay *relay.Relay
	site  *site // nil: there is no dashboard
	close func()
}

// newCarrier returns the relay of a database, with a dashboard at the address; "": without.
func newCarrier(ctx context.Context, d database, c config, s seams, listen string, log *slog.Logger) (r *carrier, err error) {
	destinations, err := destinations(c)
	if err != nil {
		return nil, err
	}
	hook := platform.Settled(d.dialect)
	if s.onSettle != nil {
		hook = s.onSettle(hook)
	}
	store, closeStore, err := d.openStore(ctx, hook)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			closeStore()
		}
	}()
	settings := relay.Config{
		Store: store, Owner: owner(), Lease: c.Relay.Lease, Destinations: destinations, Logger: log,
	}
	if s.relay != nil {
		s.relay(&settings)
	}
	r = &carrier{close: closeStore}
	if r.relay, err = relay.New(settings); err != nil {
		return nil, err
	}
	if listen != "" {
		r.site, err = newSite(ctx, d, settings, r.relay.Status, listen)
	}
	return r, err
}

// owner tells the processes of a database apart.
func owner() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "host"
	}
	return fmt.Sprintf("%s-%d", host, os.Getpid())
}

// run works until the context ends, and then stops cleanly.
func (r *carrier) run(ctx context.Context) error {
	defer r.close()
	if r.site == nil {
		return r.relay.Run(ctx)
	}
	beside, stop := context.WithCancel(context.WithoutCancel(ctx))
	shown := make(chan error, 1)
	go func() { shown <- r.site.run(beside) }()
	err := r.relay.Run(ctx)
	stop()
	return errors.Join(err, <-shown)
}

// start runs it until the function that it returns is called, which waits for its end.
func (r *carrier) start(ctx context.Context) (stop func() error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- r.run(ctx) }()
	return func() error { cancel(); return <-ended }
}
