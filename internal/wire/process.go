package wire

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/pillarbox-dev/pillarbox/contract"
	"github.com/pillarbox-dev/pillarbox/internal/config"
	"github.com/pillarbox-dev/pillarbox/internal/telemetry"
	"github.com/pillarbox-dev/pillarbox/ops"
	"github.com/pillarbox-dev/pillarbox/relay"
)

// Process is a relay with everything around it: what `pillarbox run` runs.
type Process struct {
	// Owner is the process's name in leases.
	Owner string
	// Addr is where it listens, with the port that was chosen for port 0; "": nothing is served.
	Addr string

	log      *slog.Logger
	relay    *relay.Relay
	targets  []*target
	listener net.Listener
	server   *http.Server
	beside   []func(context.Context) // what runs as long as the relay
	closers  []func()
}

// NewProcess opens the database, makes everything, and takes the address to listen on. Errors say what to do.
func NewProcess(ctx context.Context, c *config.Config, log *slog.Logger) (*Process, error) {
	p := &Process{Owner: c.Relay.Owner, log: log}
	if p.Owner == "" {
		p.Owner = defaultOwner()
	}
	if err := p.open(ctx, c); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

func (p *Process) open(ctx context.Context, c *config.Config) error {
	if advice := c.TooFewConnections(); advice != "" {
		p.log.Warn(advice)
	}
	store, closeStore, err := OpenStore(ctx, c.RelayDatabase())
	if err != nil {
		return err
	}
	p.closers = append(p.closers, closeStore)
	db, err := OpenDB(ctx, c.Database, false)
	if err != nil {
		return err
	}
	p.closers = append(p.closers, func() { _ = db.Close() })
	look, err := ops.New(db, c.Database.Dialect(), c.Database.SchemaName())
	if err != nil {
		return err
	}
	status := telemetry.NewStatusCache(look.Status, p.log)
	settings := c.RelayConfig()
	kafka := telemetry.NewKafkaMetrics()
	codes, err := p.makeTargets(c, &settings, db, kafka)
	if err != nil {
		return err
	}
	contracts, err := loadContracts(c.Contracts)
	if err != nil {
		return err
	}
	if contracts != nil {
		codes = append(codes, contract.CodeInvalid, contract.CodeUnknown, contract.CodeMissing)
		for i := range settings.Destinations {
			settings.Destinations[i].Contract = contracts.Judge
		}
	}
	metrics := telemetry.NewMetrics(telemetry.MetricsConfig{
		Destinations: c.Names(), Codes: codes, Status: status,
		Units: func() []relay.UnitStatus { return p.relay.Status() },
	})
	settings.Store, settings.Owner, settings.Logger = store, p.Owner, p.log
	observers := telemetry.Observers{metrics}
	if c.Log.Attempts == nil || *c.Log.Attempts {
		observers = append(observers, telemetry.AttemptLog{Logger: p.log})
	}
	traced, err := p.trace(ctx, c)
	if err != nil {
		return err
	}
	observers = append(observers, traced...)
	settings.Observer = observers
	if p.relay, err = relay.New(settings); err != nil {
		return err
	}
	if err := p.background(ctx, c); err != nil {
		return err
	}
	reconciled, err := p.watch(ctx, c)
	if err != nil {
		return err
	}
	open := openHandler(telemetry.Readiness{
		Units: p.relay.Status, Status: status, MaxPendingAge: time.Duration(c.Ready.MaxPendingAge),
	}, metrics, kafka, reconciled)
	handler, err := p.operators(ctx, c, contracts, newFacts(metrics, kafka), open)
	if err != nil {
		return err
	}
	return p.listen(ctx, c, handler)
}

// makeTargets fills in the destinations of the relay's configuration, and returns the codes that they may answer with.
func (p *Process) makeTargets(
	c *config.Config, settings *relay.Config, db *sql.DB, kafka *telemetry.KafkaMetrics,
) (codes []string, err error) {
	var problems []error
	for i := range settings.Destinations {
		made, err := newTarget(c, settings.Destinations[i].Name, db, kafka)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		settings.Destinations[i].Destination = made.Destination
		codes = append(codes, made.codes...)
		p.targets = append(p.targets, made)
		p.closers = append(p.closers, made.close)
	}
	return codes, errors.Join(problems...)
}

// openHandler serves what asks for no credential.
func openHandler(ready telemetry.Readiness, metrics ...prometheus.Collector) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics...)
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return telemetry.Handler(registry, ready)
}

// listen takes the address now, so that a port that is in use is known before anything runs.
func (p *Process) listen(ctx context.Context, c *config.Config, handler http.Handler) error {
	if c.Listen == "" {
		return nil
	}
	p.server = telemetry.NewServer(handler)
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", c.Listen)
	if err != nil {
		return fmt.Errorf("listen on %s: %w: choose another address with listen, or stop who has it", c.Listen, err)
	}
	p.listener, p.Addr = listener, listener.Addr().String()
	return nil
}

// Run works until the context ends, and then stops cleanly. It returns what kept a destination from working.
func (p *Process) Run(ctx context.Context) error {
	beside, stop := context.WithCancel(context.WithoutCancel(ctx)) // what the relay needs until its end
	defer stop()
	var running sync.WaitGroup
	for _, t := range p.targets {
		running.Go(func() { t.run(beside, p.log) })
		running.Go(func() { p.warn(beside, t) })
	}
	if p.server != nil {
		running.Go(func() {
			if err := p.server.Serve(p.listener); !errors.Is(err, http.ErrServerClosed) {
				p.log.Error("nothing is served any more", "error", err)
			}
		})
	}
	live, leave := context.WithCancel(beside) // what keeps connections open
	defer leave()
	for _, run := range p.beside {
		running.Go(func() { run(live) })
	}
	err := p.relay.Run(ctx)
	leave()
	if p.server != nil {
		shut, cancel := context.WithTimeout(beside, time.Second)
		defer cancel()
		if p.server.Shutdown(shut) != nil {
			_ = p.server.Close()
		}
	}
	stop()
	running.Wait()
	return err
}

// warn says at the start what a target would say at its first delivery: a secret file is missing, the receiver is away.
func (p *Process) warn(ctx context.Context, t *target) {
	checker, ok := t.Destination.(relay.Checker)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	for _, problem := range checker.Check(ctx) {
		if ctx.Err() == nil {
			p.log.Warn("a destination is not ready", "destination", t.name, "problem", problem)
		}
	}
}

// Close gives back what NewProcess took. Run must have returned.
func (p *Process) Close() {
	if p.listener != nil {
		_ = p.listener.Close() // the server has, if it ran
	}
	for i := len(p.closers) - 1; i >= 0; i-- {
		p.closers[i]()
	}
	p.closers = nil
}

// defaultOwner tells processes apart, also two in containers whose host name and process id are alike.
func defaultOwner() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "host"
	}
	return fmt.Sprintf("%s-%d-%s", host, os.Getpid(), rand.Text()[:6])
}
