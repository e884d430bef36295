package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/examples/linkostar/platform"
	"github.com/pillarbox-dev/pillarbox/internal/pgtest"
	"github.com/pillarbox-dev/pillarbox/outbox"
	"github.com/pillarbox-dev/pillarbox/relay"
	"github.com/pillarbox-dev/pillarbox/relay/relaytest"
)

// nodeFolder is the supplier's in Node.js.
const nodeFolder = "supplier/node"

// TestMain makes the test binary the program itself when it is started as a child: the processes of demos and tests are real.
func TestMain(m *testing.M) {
	if os.Getenv(childEnv) == "" {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	p := &program{stdout: os.Stdout, stderr: os.Stderr, seams: crashSeams(os.Getenv(crashEnv))}
	if err := p.run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// crash is where a process kills itself: when it gets to the point for the Nth time, counted from 1.
type crash struct {
	Point relaytest.Point
	Nth   int64
}

const crashEnv = "LINKOSTAR_CRASH"

// Crash points besides those of relaytest.
const (
	BeforeCommit relaytest.Point = "before commit" // of the platform: row and event are written
	AfterCommit  relaytest.Point = "after commit"  // of the platform: the relay knows nothing yet
	InSettle     relaytest.Point = "in the settle" // cursor, ledger and the platform's rows are written, and not committed
)

// crashSeams lets the process die as the text says, the way kill -9 does.
func crashSeams(text string) (s seams) {
	if text == "" {
		return s
	}
	var c crash
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		panic(err)
	}
	var passed atomic.Int64
	pass := func() {
		if passed.Add(1) == c.Nth {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	switch c.Point {
	case BeforeCommit:
		s.enqueuer = func(box platform.Enqueuer) platform.Enqueuer { return dyingEnqueuer{box, pass} }
	case AfterCommit:
		s.committed = pass
	case InSettle:
		s.onSettle = func(hook platform.OnSettle) platform.OnSettle {
			return func(ctx context.Context, exec platform.Exec, destination string, st relay.Settlement) error {
				defer pass()
				return hook(ctx, exec, destination, st)
			}
		}
	default:
		fault := relaytest.CrashAt(c.Point, int(c.Nth), func() { c.Nth = 1; pass() })
		s.relay = func(settings *relay.Config) {
			settings.Store = relaytest.FaultyStore(settings.Store, fault)
			for i := range settings.Destinations {
				d := &settings.Destinations[i]
				d.Destination = relaytest.FaultyDestination(d.Destination, fault)
			}
		}
	}
	return s
}

// dyingEnqueuer dies when the event is written.
type dyingEnqueuer struct {
	platform.Enqueuer
	written func()
}

func (e dyingEnqueuer) Enqueue(ctx context.Context, tx outbox.Tx, events ...outbox.Event) ([]outbox.Result, error) {
	defer e.written()
	return e.Enqueuer.Enqueue(ctx, tx, events...)
}

// process is a process of the program.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.Closer // its end is the process's
	log   bytes.Buffer
	done  chan struct{}
}

// start starts one that works with a world's suppliers. At the end of the test it is gone.
func (b *bench) start(c crash, flags ...string) *process {
	b.Helper()
	args := []string{"--stdin", "--config", b.world.config, "--database", b.database, "--listen", "", "--duration", "1h"}
	p := &process{t: b.T, cmd: self(append(args, flags...)...), done: make(chan struct{})}
	if c.Point != "" {
		text, err := json.Marshal(c)
		must(b, err)
		p.cmd.Env = append(p.cmd.Env, crashEnv+"="+string(text))
	}
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	var err error
	p.stdin, err = p.cmd.StdinPipe()
	must(b, err)
	must(b, p.cmd.Start())
	go func() { defer close(p.done); _ = p.cmd.Wait() }() // how it ended is asked for by those who care
	b.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.done
		if b.Failed() {
			b.Logf("%v logged:\n%s", flags, p.log.String())
		}
	})
	b.processes = append(b.processes, p)
	return p
}

func (p *process) ended() {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(patience):
		p.t.Fatalf("%v still runs after %v", p.cmd.Args, patience)
	}
}

// killed waits until the process has killed itself.
func (p *process) killed() {
	p.t.Helper()
	p.ended()
	if status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		p.t.Fatalf("it ended with %v, want it killed:\n%s", p.cmd.ProcessState, p.log.String())
	}
}

// kill kills it from outside, wherever it is.
func (p *process) kill() {
	p.t.Helper()
	must(p.t, p.cmd.Process.Kill())
	p.killed()
}

// stop stops it cleanly.
func (p *process) stop() {
	p.t.Helper()
	must(p.t, p.stdin.Close())
	p.ended()
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		p.t.Errorf("%v ended with %v, want a clean end", p.cmd.Args, p.cmd.ProcessState)
	}
}

// bench is suppliers, and a database for a platform and its relay.
type bench struct {
	*testing.T
	world     *world
	database  string
	db        database
	records   platform.Records
	processes []*process
}

// databases are the two that the platform runs on.
var databases = map[string]func(t *testing.T) string{
	"sqlite":   func(t *testing.T) string { return filepath.Join(t.TempDir(), "platform.db") },
	"postgres": func(t *testing.T) string { return pgtest.Database(t) },
}

// testRetry is in a hurry.
var testRetry = retryConfig{Base: 20 * time.Millisecond, Attempts: 8, Factor: 2}

func newBench(t *testing.T, dialect string) *bench {
	t.Helper()
	b := &bench{T: t, database: databases[dialect](t)}
	// The lease is not lost on a busy machine: what waits for its end sets it forward.
	o := worldOptions{dir: t.TempDir(), node: node(t), down: time.Second, retry: testRetry, lease: 30 * time.Second}
	var err error
	b.world, err = newWorld(t.Context(), o)
	must(t, err)
	t.Cleanup(func() { must(t, b.world.stop()) })
	b.db, err = openDatabase(t.Context(), b.database)
	must(t, err)
	t.Cleanup(func() { must(t, b.db.Close()) })
	b.records = platform.NewRecords(b.db.DB, b.db.dialect)
	return b
}

// installed installs the packages at its first call: tests run beside each other, and npm does not.
var installed = sync.OnceValues(func() (string, error) { return findNode(context.Background(), nodeFolder) })

// node returns the folder of the supplier in Node.js, which is part of what is promised: without it a test fails.
func node(t *testing.T) string {
	t.Helper()
	folder, err := installed()
	if err != nil {
		t.Fatalf("%v: install Node.js 18.3 or later with npm", err)
	}
	return folder
}

// plant makes something for each supplier, and one of each that is refused, so that no run has to be lucky.
func (b *bench) plant() {
	b.Helper()
	service, err := newService(b.db, seams{}, func() {})
	must(b, err)
	c, err := loadConfig(b.world.config)
	must(b, err)
	must(b, service.Transact(b.Context(), func(tx *sql.Tx) error {
		hub := platform.Hub{UUID: newUUID(), SupplierUUID: c.Suppliers["initech"].UUID, TenantUUID: brokeTenant, BundleUUID: newUUID(),
			Identifier: "legacy-1", Type: "OPEN", Metadata: "{}", Supplier: "initech"}
		errs := []error{service.RegisterHub(b.Context(), tx, hub)}
		for name, supplier := range c.Suppliers {
			device := platform.Device{UUID: newUUID(), VersionUUID: newUUID(), TenantUUID: brokeTenant, SupplierUUID: supplier.UUID,
				MACAddress: "02:00:00:00:00:01", Source: platform.TenantCreate, Supplier: name}
			errs = append(errs, service.RegisterDevice(b.Context(), tx, device), service.Activate(b.Context(), tx, newUUID(), device.UUID))
		}
		return errors.Join(errs...)
	}))
}

// bury ends the leases of a relay that was killed.
func (b *bench) bury() {
	b.Helper()
	expired := "update outbox_cursor set lease_expires_at = 0 where lease_owner is not null"
	if b.db.dialect == outbox.Postgres {
		expired = "update outbox_cursor set lease_expires_at = now() where lease_owner is not null"
	}
	_, err := b.db.ExecContext(b.Context(), expired)
	must(b, err)
}

// more waits until the platform has committed n events more.
func (b *bench) more(n int) {
	b.Helper()
	count := func() int {
		committed, err := b.records.Committed(b.Context())
		must(b, err)
		return len(committed)
	}
	before := count()
	eventually(b, fmt.Sprint(n, " events are committed"), func() bool { return count() >= before+n })
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// patience is how long anything may take before a test gives up.
const patience = 60 * time.Second

func eventually(t testing.TB, what string, done func() bool) {
	t.Helper()
	for began := time.Now(); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > patience {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}
