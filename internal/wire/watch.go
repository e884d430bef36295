package wire

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/pillarbox-dev/pillarbox/internal/config"
	"github.com/pillarbox-dev/pillarbox/internal/telemetry"
	"github.com/pillarbox-dev/pillarbox/ops"
	"github.com/pillarbox-dev/pillarbox/outbox/schema"
)

// watch is what a process does on a schedule to see that all is well: heartbeats, and reconciliation.
type watch struct {
	ops        *ops.Ops
	owner      string
	log        *slog.Logger
	heartbeats []ops.Heartbeat
	reconcile  ops.ReconcileConfig
	every      time.Duration // 0: it is not reconciled
}

// watch adds heartbeats and reconciliation to what runs beside the relay, on connections of their own, and returns the metrics.
func (p *Process) watch(ctx context.Context, c *config.Config) (*telemetry.ReconcileMetrics, error) {
	w := &watch{owner: p.Owner, log: p.log, every: time.Duration(c.Reconcile.Every)}
	if w.every == 0 && len(c.Heartbeats) == 0 {
		return telemetry.NewReconcileMetrics(nil, nil, p.log), nil
	}
	for _, h := range c.Heartbeats {
		beat, err := h.Ops()
		if err != nil {
			return nil, fmt.Errorf("heartbeat %s: %w", h.Name, err)
		}
		w.heartbeats = append(w.heartbeats, beat)
	}
	o, closeOps, err := OpenOps(ctx, c.Database)
	if err != nil {
		return nil, err
	}
	p.closers = append(p.closers, closeOps)
	w.ops = o
	if w.every > 0 {
		settings, closeInboxes, err := reconcileConfig(ctx, c)
		if err != nil {
			return nil, err
		}
		p.closers = append(p.closers, closeInboxes)
		w.reconcile = settings
	}
	p.beside = append(p.beside, w.run)
	return telemetry.NewReconcileMetrics(w.reconcile.Checks(), o.LastReconciliation, p.log), nil
}

// run works until the context ends.
func (w *watch) run(ctx context.Context) {
	var running sync.WaitGroup
	if w.every > 0 {
		running.Go(func() {
			w.ops.RunTasks(ctx, w.owner, []ops.Task{{
				Name: ops.ReconcileTask, Every: w.every,
				Run: func(ctx context.Context) error { return w.ops.ReconcileOn(ctx, w.reconcile) },
			}}, w.log)
		})
	}
	running.Go(func() {
		if err := w.ops.RunHeartbeats(ctx, w.heartbeats, w.log); err != nil {
			w.log.Error("heartbeats are not written", "error", err)
		}
	})
	running.Wait()
}

// Reconcile makes every comparison of the configuration once. since is how far back; 0: as the configuration says; negative: all.
func Reconcile(ctx context.Context, c *config.Config, since time.Duration) (ops.ReconcileReport, error) {
	o, closeOps, err := OpenOps(ctx, c.Database)
	if err != nil {
		return ops.ReconcileReport{}, err
	}
	defer closeOps()
	settings, closeInboxes, err := reconcileConfig(ctx, c)
	if err != nil {
		return ops.ReconcileReport{}, err
	}
	defer closeInboxes()
	if since != 0 {
		settings.Since = max(since, 0)
	}
	return o.Reconcile(ctx, settings)
}

// reconcileConfig opens the databases of the inboxes. In PostgreSQL that does not connect yet: a consumer's database that is
// down is no reason not to deliver.
func reconcileConfig(ctx context.Context, c *config.Config) (ops.ReconcileConfig, func(), error) {
	settings := c.Reconcile.Config(c.Destinations)
	var pools []*sql.DB
	closeAll := func() {
		for _, pool := range pools {
			_ = pool.Close()
		}
	}
	var problems []error
	for n, inbox := range c.Reconcile.Inboxes {
		pool, err := openInbox(ctx, inbox.Database)
		if err != nil {
			problems = append(problems, fmt.Errorf("inbox of %s: %w", inbox.Consumer, err))
			continue
		}
		pools = append(pools, pool)
		settings.Inboxes[n].DB = pool
	}
	if err := errors.Join(problems...); err != nil {
		closeAll()
		return settings, nil, err
	}
	return settings, closeAll, nil
}

func openInbox(ctx context.Context, db config.Database) (*sql.DB, error) {
	if db.Dialect() == schema.SQLite {
		return OpenDB(ctx, db, false)
	}
	address, err := address(db)
	if err != nil {
		return nil, err
	}
	return openPostgres(address, db.SchemaName())
}
