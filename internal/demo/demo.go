// Package demo shows Pillarbox at work on one machine, with nothing but this program: a service that commits and rolls back
// transactions with events, a receiver that misbehaves on purpose, and the relay between them, a process of its own that is
// killed and started again.
//
//	service → outbox.db → relay (killed and restarted) → receiver → inbox.db
//	   └── record ─────────────── reckoning ──────────────────────────┘
//
// At the end the service's own record of what it committed is held against the receiver's inbox and the relay's ledger. Nothing
// is called delivered that is not in the inbox, and nothing lost that the ledger still holds.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/pillarbox-dev/pillarbox/internal/child"
	"github.com/pillarbox-dev/pillarbox/internal/reckon"
)

// Options are what a demo is made of. All fields but Terminal and Lie are required.
type Options struct {
	// Duration is how long the service writes. The drain comes on top, at most DrainTimeout.
	Duration time.Duration
	// Relay returns the command that runs a relay with a configuration file until its standard input ends.
	Relay func(configFile string) *exec.Cmd
	// Progress gets the live view: redrawn in place when Terminal is set, else a line now and then.
	Progress io.Writer
	Terminal bool
	// Lie makes the receiver break its word, so that a test can see the reckoning find it.
	Lie Lie
}

// DrainTimeout bounds the time between the service's last commit and the reckoning.
const DrainTimeout = time.Minute

// ErrPending says that the drain ended before everything was settled. The reckoning that comes with it is right nevertheless.
var ErrPending = errors.New("not everything was settled in time: the reckoning counts the rest as pending")

// Run runs a demo until its duration is over or the context ends, drains, and reckons. Everything is in a temporary folder that
// is gone at the end.
func Run(ctx context.Context, o Options) (r reckon.Reckoning, err error) {
	dir, err := os.MkdirTemp("", "pillarbox-demo-")
	if err != nil {
		return r, fmt.Errorf("make a folder for the demo: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	d := &demo{Options: o, dir: dir, started: time.Now()}
	defer func() { err = errors.Join(err, d.close()) }()
	// What is under way when the context ends is brought to its end: the drain comes afterwards.
	if err := d.open(context.WithoutCancel(ctx)); err != nil {
		return r, err
	}
	return d.run(ctx)
}

type demo struct {
	Options
	dir      string
	started  time.Time
	service  *service
	receiver *receiver
	relay    *child.Process
	view     *view
}

func (d *demo) open(ctx context.Context) (err error) {
	if d.service, err = newService(ctx, d.path("outbox.db")); err != nil {
		return fmt.Errorf("start the service: %w", err)
	}
	secret, err := newSecret(d.path("secret"))
	if err != nil {
		return err
	}
	if d.receiver, err = newReceiver(ctx, d.path("inbox.db"), secret, d.Lie); err != nil {
		return fmt.Errorf("start the receiver: %w", err)
	}
	if err := os.WriteFile(d.path("pillarbox.yaml"), []byte(d.configuration()), 0o600); err != nil {
		return fmt.Errorf("write the relay's configuration: %w", err)
	}
	d.relay = &child.Process{
		Name: "relay", Command: func() *exec.Cmd { return d.Relay(d.path("pillarbox.yaml")) }, Log: d.path("relay.log"),
	}
	d.view = newView(d)
	return d.relay.Start()
}

func (d *demo) path(name string) string { return filepath.Join(d.dir, name) }

// run is the demo's course: write and kill, drain, stop, reckon.
func (d *demo) run(ctx context.Context) (reckon.Reckoning, error) {
	writing, stop := context.WithTimeout(ctx, d.Duration)
	defer stop()
	watching, stopView := context.WithCancel(context.WithoutCancel(ctx))
	viewed := make(chan struct{})
	go func() { defer close(viewed); d.view.run(watching) }()
	endView := func() { stopView(); <-viewed }
	defer endView()

	killing := make(chan error, 1)
	go func() {
		err := d.killNowAndThen(writing)
		if err != nil {
			stop() // without a relay there is nothing to show
		}
		killing <- err
	}()
	err := d.service.run(writing)
	stop()
	err = errors.Join(err, <-killing)
	if err == nil {
		err = d.drain(context.WithoutCancel(ctx))
	}
	if err != nil && !errors.Is(err, ErrPending) {
		return reckon.Reckoning{}, err
	}
	if stopped := d.relay.Stop(); stopped != nil {
		return reckon.Reckoning{}, stopped
	}
	if closed := d.receiver.stop(); closed != nil { // handlers that are late finish first
		return reckon.Reckoning{}, closed
	}
	endView()
	r, failed := d.reckon(context.WithoutCancel(ctx))
	if failed != nil {
		return reckon.Reckoning{}, failed
	}
	return r, err
}

// killNowAndThen kills the relay after a third and after two thirds of the time, in the midst of its work.
func (d *demo) killNowAndThen(ctx context.Context) error {
	for range 2 {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(d.Duration / 3):
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

// drain mends the black hole, and waits until every event that was committed is handled or quarantined.
func (d *demo) drain(ctx context.Context) error {
	d.view.phase("draining")
	d.receiver.mend()
	deadline := time.Now().Add(DrainTimeout)
	for time.Now().Before(deadline) {
		if err := d.relay.Died(); err != nil {
			return err
		}
		r, err := d.reckon(ctx)
		if err != nil {
			return err
		}
		if r.Pending == 0 {
			return nil
		}
		time.Sleep(200 * time.Millisecond)
	}
	return ErrPending
}

func (d *demo) close() error {
	var problems []error
	if d.relay != nil {
		problems = append(problems, d.relay.Stop())
	}
	if d.receiver != nil {
		problems = append(problems, d.receiver.close())
	}
	if d.service != nil {
		problems = append(problems, d.service.close())
	}
	return errors.Join(problems...)
}
