package wire

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/pillarbox-dev/pillarbox/contract"
	"github.com/pillarbox-dev/pillarbox/dashboard"
	"github.com/pillarbox-dev/pillarbox/dashboard/access"
	"github.com/pillarbox-dev/pillarbox/dashboard/api"
	"github.com/pillarbox-dev/pillarbox/dashboard/mask"
	"github.com/pillarbox-dev/pillarbox/internal/config"
	"github.com/pillarbox-dev/pillarbox/ops"
	"github.com/pillarbox-dev/pillarbox/outbox/schema"
	"github.com/pillarbox-dev/pillarbox/relay"
)

// operatorConnections bound what the dashboard and the API take of the database, apart from what the relay needs.
const operatorConnections = 4

// operators adds the dashboard and the API to what is open to everybody. It reads every secret once, so that one that is missing
// is known at the start.
func (p *Process) operators(
	ctx context.Context, c *config.Config, contracts *contract.Contracts, known *facts, open http.Handler,
) (http.Handler, error) {
	if !c.ServesDashboard() {
		return open, nil
	}
	guard, err := newAccess(c, p)
	if err != nil {
		return nil, err
	}
	look, err := p.openOperators(ctx, c.Database)
	if err != nil {
		return nil, err
	}
	if contracts != nil {
		look = look.WithContract(contracts.Judge)
	}
	hidden, units := mask.New(c.Dashboard.Mask), func() []relay.UnitStatus { return p.relay.Status() }
	consumers := newImpact(ctx, c, look, known.metrics)
	p.closers = append(p.closers, consumers.close)
	pages := dashboard.New(dashboard.Config{
		Ops: look, Destinations: c.Names(), Owner: p.Owner, Units: units, Access: guard, Mask: hidden,
		MaskOperators: c.Dashboard.MasksOperators(), Logger: p.log,
		Latencies: known.latencies, Producers: known.producers, Consumers: consumers.look, Endpoints: endpoints(c, look),
	})
	p.beside = append(p.beside, pages.Run)
	programs := api.New(api.Config{
		Ops: look, Destinations: c.Names(), Owner: p.Owner, Units: units, Mask: hidden,
		MaskOperators: c.Dashboard.MasksOperators(), Log: p.log,
	})
	mux := http.NewServeMux()
	for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
		mux.Handle(path, open)
	}
	mux.Handle(api.Prefix+"/", guard.WrapAPI(programs, api.Refuse))
	mux.Handle("/", pages)
	return mux, nil
}

// openOperators opens connections of their own, so that whoever pages through events does not keep the relay's from working.
func (p *Process) openOperators(ctx context.Context, db config.Database) (*ops.Ops, error) {
	pool, err := OpenDB(ctx, db, false)
	if err != nil {
		return nil, err
	}
	p.closers = append(p.closers, func() { _ = pool.Close() })
	if db.Dialect() == schema.Postgres {
		pool.SetMaxOpenConns(operatorConnections)
	}
	return ops.New(pool, db.Dialect(), db.SchemaName())
}

func newAccess(c *config.Config, p *Process) (*access.Access, error) {
	settings := c.Dashboard.Access()
	settings.Log = p.log
	guard, err := access.New(settings)
	if err == nil {
		err = errors.Join(guard.Check()...)
	}
	if err != nil {
		return nil, fmt.Errorf("who may use the dashboard and the API: %w", err)
	}
	return guard, nil
}

// checkAccess reads the secrets of those who may use the dashboard and the API.
func checkAccess(c *config.Config) Finding {
	f := Finding{Part: "dashboard", About: "for everybody on this machine, at " + c.Listen}
	if tokens, users := len(c.Dashboard.Tokens), len(c.Dashboard.Users); tokens+users > 0 {
		var who []string
		for _, kind := range []struct {
			n    int
			name string
		}{{tokens, "token"}, {users, "user"}} {
			switch {
			case kind.n == 1:
				who = append(who, "1 "+kind.name)
			case kind.n > 1:
				who = append(who, fmt.Sprintf("%d %ss", kind.n, kind.name))
			}
		}
		f.About = "for " + strings.Join(who, " and ") + ", at " + c.Listen
	}
	guard, err := access.New(c.Dashboard.Access())
	if err != nil {
		f.Problems = config.Each(err)
		return f
	}
	f.Problems = guard.Check()
	return f
}
