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
	"github.com/pillarbox-dev/pillarbox/ops"
)

// site is where the dashboard is served, to this machine alone.
type site struct {
	*dashboard.Dashboard
	listener net.Listener
}

func newSite(look *ops.Ops, c *carrier) (*site, error) {
	listener, err := inherited()
	if err != nil {
		return nil, err
	}
	return &site{listener: listener, Dashboard: dashboard.New(dashboard.Config{
		Ops: look, Title: "Approvals", Destinations: []string{destinationName}, Owner: c.settings.Owner, Units: c.Status,
		Logger: c.settings.Logger,
	})}, nil
}

// run serves it until the context ends.
func (s *site) run(ctx context.Context) error {
	server := &http.Server{Handler: s.Dashboard, ReadHeaderTimeout: 5 * time.Second}
	var keeping sync.WaitGroup
	keeping.Go(func() { s.Run(ctx) })
	closing := context.AfterFunc(ctx, func() { _ = server.Close() }) // a page that is open says that it has lost the connection
	defer closing()
	err := server.Serve(s.listener)
	keeping.Wait()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve the dashboard: %w", err)
}
