package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/contract"
	"github.com/pillarbox-dev/pillarbox/internal/cli"
	"github.com/pillarbox-dev/pillarbox/outbox"
	"github.com/pillarbox-dev/pillarbox/relay"
	"github.com/pillarbox-dev/pillarbox/relay/relaytest"
)

// TestMain makes the test binary the program itself when it is started as a part: the processes of demos and tests are real.
func TestMain(m *testing.M) {
	if os.Getenv(asPillarbox) != "" {
		os.Exit(cli.Run(os.Args[1:], os.Stdout, os.Stderr))
	}
	if os.Getenv(settingsEnv) == "" {
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

const crashEnv = "APPROVALS_CRASH"

// Crash points besides those of relaytest.
const (
	BeforeCommit relaytest.Point = "before commit" // of the service: row, history and event are written
	AfterCommit  relaytest.Point = "after commit"  // of the service: the relay knows nothing yet
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
	die := func() {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
	var passed atomic.Int64
	pass := func() {
		if passed.Add(1) == c.Nth {
			die()
		}
	}
	switch c.Point {
	case BeforeCommit:
		s.enqueuer = func(box contract.Enqueuer) contract.Enqueuer { return dyingEnqueuer{box, pass} }
	case AfterCommit:
		s.committed = pass
	default:
		fault := relaytest.CrashAt(c.Point, int(c.Nth), die)
		s.relay = func(settings *relay.Config) {
			settings.Store = relaytest.FaultyStore(settings.Store, fault)
			d := &settings.Destinations[0]
			d.Destination = relaytest.FaultyDestination(d.Destination, fault)
		}
	}
	return s
}

// dyingEnqueuer dies when the event is written.
type dyingEnqueuer struct {
	contract.Enqueuer
	written func()
}

func (e dyingEnqueuer) Enqueue(ctx context.Context, tx outbox.Tx, events ...outbox.Event) ([]outbox.Result, error) {
	defer e.written()
	return e.Enqueuer.Enqueue(ctx, tx, events...)
}

// process is a part of the program.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.Closer // its end is the process's
	done  chan struct{}

	mu  sync.Mutex
	log bytes.Buffer
}

// start starts a part, which kills itself at the crash point.
func (b *bench) start(role string, s settings, c crash) *process {
	b.Helper()
	cmd := self(role, s, nil)
	if c.Point != "" {
		text, err := json.Marshal(c)
		must(b, err)
		cmd.Env = append(cmd.Env, crashEnv+"="+string(text))
	}
	return b.launch(role, cmd)
}

// launch starts a process. At the end of the test it is gone.
func (b *bench) launch(role string, cmd *exec.Cmd) *process {
	b.Helper()
	p := &process{t: b.T, cmd: cmd, done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = p, p
	var err error
	p.stdin, err = p.cmd.StdinPipe()
	must(b, err)
	must(b, p.cmd.Start())
	go func() { defer close(p.done); _ = p.cmd.Wait() }() // how it ended is asked for by those who care
	b.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.done
		if b.Failed() {
			b.Logf("the %s logged:\n%s", role, p.logged())
		}
	})
	b.processes = append(b.processes, p)
	return p
}

// Write takes what the process says.
func (p *process) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.Write(text)
}

func (p *process) logged() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
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
		p.t.Fatalf("it ended with %v, want it killed:\n%s", p.cmd.ProcessState, p.logged())
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
