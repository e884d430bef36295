package wire

import (
	"context"

	"github.com/pillarbox-dev/pillarbox/internal/config"
	"github.com/pillarbox-dev/pillarbox/ops"
)

// background adds to what runs beside the relay: jobs that operators start, and retention. It has connections of its own, so that
// neither takes one from the relay. A role that lacks the rights is told so by a line of the log, and the relay goes on.
func (p *Process) background(ctx context.Context, c *config.Config) error {
	o, closeOps, err := OpenOps(ctx, c.Database)
	if err != nil {
		return err
	}
	p.closers = append(p.closers, closeOps)
	p.beside = append(p.beside, func(ctx context.Context) { o.RunJobs(ctx, p.log) })
	if len(c.Retention.Rules) == 0 {
		return nil
	}
	task := o.RetentionTask(c.Retention.Interval(), c.Retention.Config(c.Names()), p.retained)
	p.beside = append(p.beside, func(ctx context.Context) { o.RunTasks(ctx, p.Owner, []ops.Task{task}, p.log) })
	return nil
}

// retained tells what a run of retention did, when it did something.
func (p *Process) retained(r ops.RetentionReport) {
	if r.Events > 0 {
		p.log.Info("retention has taken events away", "events", r.Events, "archived", r.Archived, "kept", r.Kept, "took", r.Took)
	}
}

// Retain keeps the retention of the configuration once.
func Retain(ctx context.Context, c *config.Config, dryRun bool) (ops.RetentionReport, error) {
	o, closeOps, err := OpenOps(ctx, c.Database)
	if err != nil {
		return ops.RetentionReport{}, err
	}
	defer closeOps()
	settings := c.Retention.Config(c.Names())
	settings.DryRun = dryRun
	return o.Retain(ctx, settings)
}
