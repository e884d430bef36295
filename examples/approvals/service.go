package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/pillarbox-dev/pillarbox/contract"
	"github.com/pillarbox-dev/pillarbox/examples/approvals/approval"
	"github.com/pillarbox-dev/pillarbox/ops"
	"github.com/pillarbox-dev/pillarbox/outbox"
	"github.com/pillarbox-dev/pillarbox/relay"
)

// seams are where a test takes the place of a part, to let the process die there. Nil leaves the part as it is.
type seams struct {
	enqueuer  func(contract.Enqueuer) contract.Enqueuer
	committed func()
	relay     func(*relay.Config)
}

// newService returns the approvals of a database. committed is called after each commit.
func newService(d database, s seams, committed func()) (*approval.Service, error) {
	box, err := outbox.New(d.dialect, outbox.Options{MaxPayloadBytes: 16 << 10})
	if err != nil {
		return nil, err
	}
	contracts, err := loadContracts()
	if err != nil {
		return nil, err
	}
	var events contract.Enqueuer = contract.Checking(box, contracts)
	if s.enqueuer != nil {
		events = s.enqueuer(events)
	}
	if s.committed != nil {
		committed = s.committed
	}
	return approval.New(approval.Config{DB: d.DB, Dialect: d.dialect, Events: events, Committed: committed})
}

// work is the service, with its relay inside unless that is beside, or the relay alone. It ends with the context.
func (p *program) work(ctx context.Context, role string, s settings) error {
	log := slog.New(slog.NewTextHandler(p.stderr, nil))
	opening := context.WithoutCancel(ctx) // one that is stopped at its start stops cleanly
	d, err := openDatabase(opening, s.Database)
	if err != nil {
		return err
	}
	defer d.Close()
	look, err := ops.New(d.DB, d.dialect, d.schemaName())
	if err != nil {
		return err
	}
	var parts []func(context.Context) error
	wake := func() {} // a relay beside polls, or is notified
	if role == relayRole || s.Relay {
		c, err := newCarrier(opening, d, s, p.seams, log)
		if err != nil {
			return err
		}
		defer c.close()
		wake = c.Wake
		parts = append(parts, c.Run)
		if s.Dashboard {
			site, err := newSite(look, c)
			if err != nil {
				return err
			}
			parts = append(parts, site.run)
		}
	}
	if role == serviceRole {
		write, err := p.writer(d, look, s, wake, log)
		if err != nil {
			return err
		}
		parts = append(parts, write)
	}
	return together(ctx, parts)
}

// together runs parts until the context ends, or one of them fails.
func together(ctx context.Context, parts []func(context.Context) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	errs := make([]error, len(parts))
	var running sync.WaitGroup
	for i, part := range parts {
		running.Go(func() {
			if errs[i] = part(ctx); errs[i] != nil {
				stop()
			}
		})
	}
	running.Wait()
	return errors.Join(errs...)
}

// allWritten is the line that says that the service writes no more.
const allWritten = "all is written"

// writer returns what the service does: it works on approvals, and writes a heartbeat, until its time is over. Its relay goes on.
func (p *program) writer(
	d database, look *ops.Ops, s settings, committed func(), log *slog.Logger,
) (func(context.Context) error, error) {
	outer := p.seams
	outer.enqueuer = func(box contract.Enqueuer) contract.Enqueuer {
		if p.seams.enqueuer != nil {
			box = p.seams.enqueuer(box)
		}
		return &fickle{Enqueuer: box, out: p.stdout}
	}
	service, err := newService(d, outer, committed)
	if err != nil {
		return nil, err
	}
	parts := []func(context.Context) error{func(ctx context.Context) error { return workload(ctx, service, log) }}
	if s.Heartbeat > 0 {
		parts = append(parts, func(ctx context.Context) error {
			return look.RunHeartbeats(ctx, []ops.Heartbeat{heartbeat(s.Heartbeat)}, log)
		})
	}
	return func(ctx context.Context) error {
		writing, stop := context.WithDeadline(ctx, s.Until)
		defer stop()
		if err := together(writing, parts); err != nil {
			return err
		}
		_, _ = fmt.Fprintln(p.stdout, allWritten)
		<-ctx.Done()
		return nil
	}, nil
}
