package main

import (
	"context"
	"errors"
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
	d, err := openDatabase(ctx, s.Database)
	if err != nil {
		return err
	}
	defer d.Close()
	look, err := ops.New(d.DB, d.dialect, d.schemaName())
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var running sync.WaitGroup
	run := func(part func(context.Context) error) {
		running.Go(func() {
			if err := part(ctx); err != nil {
				stop(err) // nobody goes on without it
			}
		})
	}
	wake := func() {} // a relay beside polls, or is notified
	if role == relayRole || s.Relay {
		c, err := newCarrier(ctx, d, s, p.seams, log)
		if err != nil {
			return err
		}
		defer c.close()
		wake = c.Wake
		run(c.Run)
		if s.Listen != "" {
			site, err := newSite(ctx, look, c, s.Listen)
			if err != nil {
				stop(err)
			} else {
				run(site.run)
			}
		}
	}
	if role == serviceRole {
		p.serve(run, d, look, s, wake, log, stop)
	}
	running.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// serve starts what the service does: work on approvals, and a heartbeat.
func (p *program) serve(
	run func(func(context.Context) error), d database, look *ops.Ops, s settings, wake func(), log *slog.Logger, stop func(error),
) {
	seams := p.seams
	inner := seams.enqueuer
	seams.enqueuer = func(box contract.Enqueuer) contract.Enqueuer {
		if inner != nil {
			box = inner(box)
		}
		return &fickle{Enqueuer: box, out: p.stdout}
	}
	service, err := newService(d, seams, wake)
	if err != nil {
		stop(err)
		return
	}
	run(func(ctx context.Context) error {
		if err := work(ctx, service, s.Until, log); err != nil {
			return err
		}
		<-ctx.Done()
		return nil
	})
	if s.Heartbeat > 0 {
		run(func(ctx context.Context) error {
			ctx, stop := context.WithDeadline(ctx, s.Until)
			defer stop()
			return look.RunHeartbeats(ctx, []ops.Heartbeat{heartbeat(s.Heartbeat)}, log)
		})
	}
}
