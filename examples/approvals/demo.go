package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/pillarbox-dev/pillarbox/examples/approvals/audit"
	"github.com/pillarbox-dev/pillarbox/internal/child"
	"github.com/pillarbox-dev/pillarbox/internal/reckon"
)

// demo is the service and the audit store, each a process of its own, and what happens to them.
type demo struct {
	options
	progress io.Writer
	started  time.Time
	dir      string
	db       database
	audit    *auditCore
	settings settings // of service and relay
	socket   *os.File // of the dashboard; nil: there is none
	service  *child.Process
	relay    *child.Process // beside; nil: it is inside the service
}

const (
	// drainTimeout bounds the time between the last commit and the reckoning.
	drainTimeout  = time.Minute
	demoLease     = 2 * time.Second
	demoHeartbeat = 2 * time.Second
)

// errPending says that the drain ended too soon. The reckoning is right nevertheless.
var errPending = fmt.Errorf("not everything was settled within %v: the reckoning counts the rest as pending", drainTimeout)

// runDemo runs a demo. Everything is in a temporary folder, which is gone at the end; a database that was given stays.
func runDemo(ctx context.Context, o options, progress io.Writer) (r reckon.Reckoning, notes []string, err error) {
	dir, err := os.MkdirTemp("", "approvals-")
	if err != nil {
		return r, nil, fmt.Errorf("make a folder for the demo: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	d := &demo{options: o, progress: progress, started: time.Now(), dir: dir}
	defer func() { err = errors.Join(err, d.close()) }()
	lasting := context.WithoutCancel(ctx) // what is under way when the context ends is brought to its end
	if err := d.open(lasting); err != nil {
		return r, nil, err
	}
	if err := d.live(ctx); err != nil {
		return r, nil, err
	}
	return d.end(lasting)
}

func (d *demo) path(name string) string { return filepath.Join(d.dir, name) }

func (d *demo) open(ctx context.Context) (err error) {
	if d.database == "" {
		d.database = d.path("approvals.db")
	}
	if d.db, err = openDatabase(ctx, d.database); err != nil {
		return err
	}
	var before int64
	if err := d.db.QueryRowContext(ctx, `select coalesce(max(seq), 0) from outbox_event`).Scan(&before); err != nil {
		return err
	}
	if before > 0 {
		return errors.New("the database holds events of before, which this audit store has never seen: give an empty one")
	}
	if d.audit, err = startAudit(ctx, d.dir); err != nil {
		return err
	}
	d.settings = settings{
		Database: d.database, AuditURL: d.audit.url + "/events", TokenFile: d.audit.settings.TokenFile,
		SecretFile: d.audit.settings.SecretFile, Lease: demoLease, Heartbeat: demoHeartbeat, Relay: !d.beside,
		Dashboard: d.listen != "", Until: d.started.Add(d.duration),
	}
	if d.settings.Dashboard {
		var url string
		if d.socket, url, err = newSocket(ctx, d.listen); err != nil {
			return err
		}
		d.say("the dashboard, for as long as this runs: %s/", url)
	}
	part := func(role string) *child.Process {
		return &child.Process{Name: role, Log: d.path(role + ".log"), Command: func() *exec.Cmd {
			return self(role, d.settings, d.socket)
		}}
	}
	d.service = part(serviceRole)
	if d.beside {
		d.relay = part(relayRole)
	}
	return d.start()
}

// start starts the service and the relay, those that do not run.
func (d *demo) start() error {
	if d.relay != nil {
		if err := d.relay.Start(); err != nil {
			return err
		}
	}
	return d.service.Start()
}

// live is the course of the demo: a hard life, then peace.
func (d *demo) live(ctx context.Context) error {
	lasting := context.WithoutCancel(ctx)
	ctx, stop := context.WithDeadline(ctx, d.started.Add(d.duration))
	defer stop()
	if err := d.audit.tell(lasting, audit.Control{LoseEvery: new(10)}); err != nil {
		return err
	}
	d.say("the audit store is up, and loses the answer to every tenth event")
	for _, step := range d.course(lasting) {
		select {
		case <-ctx.Done():
		case <-time.After(time.Until(d.started.Add(time.Duration(step.at * float64(d.duration))))):
		}
		if ctx.Err() != nil {
			break
		}
		if err := step.do(); err != nil {
			return err
		}
	}
	select {
	case <-ctx.Done():
	case <-time.After(time.Until(d.started.Add(d.duration))):
	}
	return d.audit.tell(lasting, audit.Control{Down: new(false), SlowMS: new(0), LoseEvery: new(0)})
}

// step is something that happens after a part of the time.
type step struct {
	at float64
	do func() error
}

func (d *demo) course(ctx context.Context) []step {
	var follow func() error
	var revoked int
	tell := func(c audit.Control, text string) func() error {
		return func() error { d.say("%s", text); return d.audit.tell(ctx, c) }
	}
	return []step{
		{0.15, func() (err error) {
			d.say("the audit store accepts a new token alone; the relay's file still has the old one")
			follow, err = d.audit.rotate(ctx)
			return err
		}},
		{0.22, func() error { d.say("the file follows: the next attempt has the new token"); return follow() }},
		{0.33, func() error { return d.kill() }},
		{0.45, func() (err error) {
			revoked, err = d.revocations(ctx)
			return errors.Join(err, tell(audit.Control{Down: new(true)}, "the audit store is down")())
		}},
		{0.60, func() error {
			now, err := d.revocations(ctx)
			d.say("%d approvals were revoked while the audit store was down; it is up again", now-revoked)
			return errors.Join(err, d.audit.tell(ctx, audit.Control{Down: new(false)}))
		}},
		{0.66, func() error { return d.kill() }},
		{0.75, tell(audit.Control{SlowMS: new(150)}, "the audit store is slow")},
		{0.85, tell(audit.Control{SlowMS: new(0)}, "it is quick again")},
	}
}

// kill kills the service, and a relay beside, as a power failure would, and starts them again.
func (d *demo) kill() error {
	if d.relay != nil {
		if err := d.relay.Kill(); err != nil {
			return err
		}
	}
	if err := d.service.Kill(); err != nil {
		return err
	}
	d.say("the service and its relay were killed with SIGKILL, and start again")
	return d.start()
}

func (d *demo) revocations(ctx context.Context) (n int, err error) {
	err = d.db.QueryRowContext(ctx, countRevoked).Scan(&n)
	return n, err
}

// end drains, stops and reckons.
func (d *demo) end(ctx context.Context) (r reckon.Reckoning, notes []string, err error) {
	if err := d.writeNoMore(); err != nil {
		return r, nil, err
	}
	d.say("the service writes no more; what is pending is delivered")
	err = d.drain(ctx)
	if err != nil && !errors.Is(err, errPending) {
		return r, nil, err
	}
	if stopped := d.stop(); stopped != nil {
		return r, nil, stopped
	}
	r, chain, failed := reckonAll(ctx, d.db, d.audit.store)
	if failed != nil {
		return r, nil, failed
	}
	r.RelayKills = d.service.Killed()
	r.RolledBack = d.logged(serviceRole, rolledBack)
	r.Seconds = float64(time.Since(d.started).Milliseconds()) / 1000
	heartbeats := 0
	for _, e := range chain {
		if delivered, _ := adapted(e); delivered.Type == "approval.heartbeat" {
			heartbeats++
		}
	}
	notes = []string{fmt.Sprintf("The audit store's chain holds, from the first of its %d entries to the last; %d are heartbeats.",
		len(chain), heartbeats)}
	return r, notes, err
}

// writeNoMore starts the service again, so that it only delivers, when the demo ends before its time.
func (d *demo) writeNoMore() error {
	if time.Now().After(d.settings.Until) {
		return nil
	}
	d.settings.Until = time.Now()
	if err := d.service.Stop(); err != nil {
		return err
	}
	return d.service.Start()
}

// drain waits until every event is in the audit store.
func (d *demo) drain(ctx context.Context) error {
	for deadline := time.Now().Add(drainTimeout); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		if err := d.service.Died(); err != nil {
			return err
		}
		if d.logged(serviceRole, allWritten) == 0 {
			continue
		}
		if r, _, err := reckonAll(ctx, d.db, d.audit.store); err != nil || r.Pending == 0 {
			return err
		}
	}
	return errPending
}

// logged returns how many lines a process has said that begin with some words.
func (d *demo) logged(role, words string) (n int) {
	file, err := os.Open(d.path(role + ".log"))
	if err != nil {
		return 0
	}
	defer func() { _ = file.Close() }()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), words) {
			n++
		}
	}
	return n
}

// stop stops the service and a relay beside, in order. What has stopped already is left alone.
func (d *demo) stop() (err error) {
	for _, p := range []*child.Process{d.service, d.relay} {
		if p != nil {
			err = errors.Join(err, p.Stop())
		}
	}
	return err
}

func (d *demo) close() error {
	err := d.stop()
	if d.socket != nil {
		err = errors.Join(err, d.socket.Close())
	}
	if d.audit != nil {
		err = errors.Join(err, d.audit.stop())
	}
	if d.db.DB != nil {
		err = errors.Join(err, d.db.Close())
	}
	return err
}

// say tells the story, a line with the time.
func (d *demo) say(format string, args ...any) {
	text := strings.TrimRight(fmt.Sprintf(format, args...), "\n")
	_, _ = fmt.Fprintf(d.progress, "%5.1fs %s\n", time.Since(d.started).Seconds(), text)
}
