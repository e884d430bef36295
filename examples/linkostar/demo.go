package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/pillarbox-dev/pillarbox/examples/linkostar/platform"
	"github.com/pillarbox-dev/pillarbox/examples/linkostar/supplier"
	"github.com/pillarbox-dev/pillarbox/internal/child"
	"github.com/pillarbox-dev/pillarbox/internal/reckon"
)

// demo runs the platform in a world of its own, for a while, and reckons.
type demo struct {
	options
	progress io.Writer
	started  time.Time
	dir      string
	world    *world
	database database
	records  platform.Records
	workload *workload
	relay    *child.Process // beside; nil: the relay is in this process
}

const (
	// drainTimeout bounds the time between the last commit and the reckoning.
	drainTimeout = time.Minute
	lineEvery    = 2 * time.Second
)

// demoRetry is in a hurry: attempts come after 0.2 s, 0.4 s … 12.8 s.
var demoRetry = retryConfig{Base: 100 * time.Millisecond, Attempts: 8, Factor: 2}

const (
	demoLease = 2 * time.Second
	kills     = 2 // of a relay beside
)

// errPending says that the drain ended too soon. The reckoning is right nevertheless.
var errPending = fmt.Errorf("not everything was settled within %v: the reckoning counts the rest as pending", drainTimeout)

// runDemo runs a demo. Everything is in a temporary folder, which is gone at the end; a database that was given stays.
func runDemo(ctx context.Context, o options, progress io.Writer) (r reckon.Reckoning, err error) {
	dir, err := os.MkdirTemp("", "linkostar-")
	if err != nil {
		return r, fmt.Errorf("make a folder for the demo: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	d := &demo{options: o, progress: progress, started: time.Now(), dir: dir}
	defer func() { err = errors.Join(err, d.close()) }()
	if err := d.open(context.WithoutCancel(ctx)); err != nil {
		return r, err
	}
	return d.run(ctx)
}

func (d *demo) open(ctx context.Context) (err error) {
	node, why := findNode(ctx, d.node)
	if why != nil {
		d.say("there is no supplier in Node.js, a third one in Go takes its place: %v", why)
	}
	if d.options.database == "" {
		d.options.database = filepath.Join(d.dir, "platform.db")
	}
	if d.database, err = openDatabase(ctx, d.options.database); err != nil {
		return err
	}
	d.records = platform.NewRecords(d.database.DB, d.database.dialect)
	if before, err := d.records.Committed(ctx); err != nil {
		return err
	} else if len(before) > 0 {
		return fmt.Errorf("the database holds %d events of before, which these suppliers have never seen: give an empty one",
			len(before))
	}
	d.world, err = newWorld(ctx, worldOptions{dir: d.dir, node: node, down: d.duration / 4, retry: demoRetry, lease: demoLease})
	return err
}

// run is the demo's course: write, drain, stop, reckon.
func (d *demo) run(ctx context.Context) (reckon.Reckoning, error) {
	lasting := context.WithoutCancel(ctx)
	wake, stopRelay, err := d.startRelay(lasting)
	if err != nil {
		return reckon.Reckoning{}, err
	}
	c, err := loadConfig(d.world.config)
	if err != nil {
		return reckon.Reckoning{}, errors.Join(err, stopRelay())
	}
	service, err := newService(d.database, seams{}, wake)
	if err != nil {
		return reckon.Reckoning{}, errors.Join(err, stopRelay())
	}
	d.workload = &workload{platform: service, suppliers: c.Suppliers}
	watched := d.watch(lasting)

	writing, stop := context.WithTimeout(ctx, d.duration)
	defer stop()
	killing := make(chan error, 1)
	go func() { killing <- d.killNowAndThen(writing) }()
	err = errors.Join(d.workload.run(writing), <-killing)
	if err == nil {
		err = d.drain(lasting)
	}
	err = errors.Join(err, stopRelay())
	watched()
	if err != nil && !errors.Is(err, errPending) {
		return reckon.Reckoning{}, err
	}
	r, failed := d.reckon(lasting)
	return r, errors.Join(err, failed, d.compare(lasting))
}

// compare makes sure that the platform's rows say what the ledger says.
func (d *demo) compare(ctx context.Context) error {
	diverged, err := d.records.Diverged(ctx)
	if err != nil || len(diverged) == 0 {
		return err
	}
	return fmt.Errorf("%d rows say something else than the ledger: %.3v", len(diverged), diverged)
}

// startRelay starts the relay, in this process or as one of its own. wake tells it of a commit.
func (d *demo) startRelay(ctx context.Context) (wake func(), stop func() error, err error) {
	if d.beside {
		d.relay = &child.Process{Name: "relay", Log: d.world.path("relay.log"), Command: func() *exec.Cmd {
			return self("--relay-only", "--stdin", "--config", d.world.config, "--database", d.options.database, "--listen", d.listen)
		}}
		return func() {}, d.relay.Stop, d.relay.Start() // it polls, or is notified
	}
	c, err := loadConfig(d.world.config)
	if err != nil {
		return nil, nil, err
	}
	log, err := os.Create(d.world.path("relay.log"))
	if err != nil {
		return nil, nil, fmt.Errorf("open the relay's log: %w", err)
	}
	carrier, err := newCarrier(ctx, d.database, c, seams{}, d.listen, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		return nil, nil, errors.Join(err, log.Close())
	}
	if carrier.site != nil {
		d.say("the dashboard, for as long as this runs: %s", carrier.site.url())
	}
	stopCarrier := carrier.start(ctx)
	return carrier.relay.Wake, func() error { return errors.Join(stopCarrier(), log.Close()) }, nil
}

// killNowAndThen kills a relay beside with SIGKILL, in the midst of its work.
func (d *demo) killNowAndThen(ctx context.Context) error {
	if d.relay == nil {
		return nil
	}
	for range kills {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(d.duration / (kills + 1)):
		}
		if err := d.relay.Kill(); err != nil {
			return err
		}
		if err := d.relay.Start(); err != nil {
			return err
		}
	}
	return nil
}

// drain waits until every event that was committed is delivered or dead.
func (d *demo) drain(ctx context.Context) error {
	for deadline := time.Now().Add(drainTimeout); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		if d.relay != nil {
			if err := d.relay.Died(); err != nil {
				return err
			}
		}
		if r, err := d.reckon(ctx); err != nil || r.Pending == 0 {
			return err
		}
	}
	return errPending
}

func (d *demo) reckon(ctx context.Context) (r reckon.Reckoning, err error) {
	if r, _, err = reckonWorld(ctx, d.records, d.world); err != nil {
		return r, err
	}
	r.RolledBack = int(d.workload.rolledBack.Load())
	if d.relay != nil {
		r.RelayKills = d.relay.Killed()
	}
	r.Seconds = float64(time.Since(d.started).Milliseconds()) / 1000
	return r, nil
}

// reckonWorld holds what the platform has committed against what the ledger says and what the suppliers hold, in that order.
func reckonWorld(ctx context.Context, records platform.Records, w *world) (r reckon.Reckoning, inbox supplier.Inbox, err error) {
	committed, err := records.Committed(ctx)
	if err != nil {
		return r, inbox, err
	}
	held, err := records.Held(ctx)
	if err != nil {
		return r, inbox, err
	}
	if inbox, err = w.inbox(ctx); err != nil {
		return r, inbox, err
	}
	handled := make([]reckon.Handled, len(inbox.Received))
	for i, got := range inbox.Received {
		handled[i] = reckon.Handled{ID: got.ID, Key: got.Kind + " " + got.Key, Times: 1}
	}
	r = reckon.Of(committed, handled, held)
	r.Duplicates += inbox.Duplicates
	return r, inbox, nil
}

// watch says now and then what the platform's own rows say, until the function that it returns is called.
func (d *demo) watch(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			if counts, err := d.records.Counts(ctx); err == nil {
				d.say("%5.1fs %s", time.Since(d.started).Seconds(), counted(counts))
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(lineEvery):
			}
		}
	}()
	return func() { cancel(); <-done }
}

func (d *demo) say(format string, args ...any) { _, _ = fmt.Fprintf(d.progress, format+"\n", args...) }

func (d *demo) close() error {
	var problems []error
	if d.world != nil {
		problems = append(problems, d.world.stop())
	}
	if d.database.DB != nil {
		problems = append(problems, d.database.Close())
	}
	return errors.Join(problems...)
}
