package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/pillarbox-dev/pillarbox/dashboard"
	"github.com/pillarbox-dev/pillarbox/dashboard/access"
	"github.com/pillarbox-dev/pillarbox/ops"
	"github.com/pillarbox-dev/pillarbox/relay"
)

// site is where the dashboard is served.
type site struct {
	dashboard *dashboard.Dashboard
	handler   http.Handler
	listener  net.Listener
}

// newSite mounts the dashboard. Without credentials it lets this machine in alone.
func newSite(
	ctx context.Context, d database, settings relay.Config, units func() []relay.UnitStatus, listen string,
) (*site, error) {
	look, err := ops.New(d.DB, d.dialect, d.schemaName())
	if err != nil {
		return nil, err
	}
	gate, err := access.New(access.Config{Log: settings.Logger})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, d := range settings.Destinations {
		names = append(names, d.Name)
	}
	board := dashboard.New(dashboard.Config{
		Ops: look, Title: "LinkOStar", Destinations: names, Owner: settings.Owner, Units: units, Logger: settings.Logger,
	})
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", listen)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w: choose another address with --listen", listen, err)
	}
	s := &site{dashboard: board, handler: gate.Wrap(board), listener: listener}
	settings.Logger.Info("the dashboard is served", "url", s.url())
	return s, nil
}

func (s *site) url() string { return "http://" + s.listener.Addr().String() + "/" }

// run serves it until the context ends.
func (s *site) run(ctx context.Context) error {
	server := &http.Server{Handler: s.handler, ReadHeaderTimeout: 5 * time.Second}
	var keeping sync.WaitGroup
	keeping.Go(func() { s.dashboard.Run(ctx) })
	closing := context.AfterFunc(ctx, func() { _ = server.Close() }) // a page that is open says that it has lost the connection
	defer closing()
	err := server.Serve(s.listener)
	keeping.Wait()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve the dashboard: %w", err)
}
