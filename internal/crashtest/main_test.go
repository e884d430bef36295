package crashtest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/relay"
	"github.com/pillarbox-dev/pillarbox/relay/relaytest"
)

// argsEnv makes the test binary run a relay or a producer, as its JSON says, instead of the tests.
const argsEnv = "CRASHTEST_PROCESS"

// processArgs say what a process does.
type processArgs struct {
	Name     string // the relay's owner; "" makes it a producer
	Dialect  string
	Database string
	Receiver string // URL
	// Brokers and Topic, when given, are where a relay sends events instead; Batch is how many at once, 20 by default.
	Brokers []string
	Topic   string
	Batch   int
	// Point and Nth are where a relay kills itself; "" is nowhere.
	Point relaytest.Point
	Nth   int
	// Lease is how long the relay's lease lasts. A call of Deliver may take half of it. Default longLease.
	Lease time.Duration
	// Shards is how many the destination has. Default 1.
	Shards int
	// Poison is the id of an event that kills the relay which delivers it.
	Poison string
	// Key is of a producer's events, and Nth is the transaction in which it kills itself, counted from 0.
	Key string
}

// longLease is not lost on a busy machine. A test that waits for its end after a kill sets the clock forward: see bury.
const longLease = 30 * time.Second

// shortLease is waited out.
const shortLease = 3 * time.Second

func TestMain(m *testing.M) {
	text, ok := os.LookupEnv(argsEnv)
	if !ok {
		os.Exit(m.Run())
	}
	var args processArgs
	err := json.Unmarshal([]byte(text), &args)
	if err == nil {
		run := runRelay
		if args.Name == "" {
			run = runProducer
		}
		err = run(context.Background(), args)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// kill ends this process as kill -9 does, and never returns.
func kill() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// runRelay carries events to the receiver until it is killed, or told to stop.
func runRelay(ctx context.Context, args processArgs) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer stop()
	store, err := dialects[args.Dialect].openStore(ctx, args.Database)
	if err != nil {
		return err
	}
	destination, closeDestination, err := newDestination(args)
	if err != nil {
		return err
	}
	defer closeDestination()
	if args.Point != "" {
		crash := relaytest.CrashAt(args.Point, args.Nth, kill)
		store, destination = relaytest.FaultyStore(store, crash), relaytest.FaultyDestination(destination, crash)
	}
	r, err := relay.New(relay.Config{
		Store:    store,
		Owner:    args.Name,
		Lease:    args.Lease,
		Logger:   slog.New(slog.NewTextHandler(os.Stderr, nil)),
		Observer: printer{},
		Destinations: []relay.DestinationConfig{{
			Name:        "inbox",
			Destination: destination,
			Shards:      args.Shards,
			Timeout:     args.Lease / 2,
			Concurrency: concurrency,
			Retry:       relay.RetryPolicy{Base: 50 * time.Millisecond, Max: time.Second, MaxAttempts: 100},
			Breaker:     relay.BreakerConfig{Probe: 50 * time.Millisecond, MaxProbe: 200 * time.Millisecond},
		}},
	})
	if err != nil {
		return err
	}
	return r.Run(ctx)
}

// concurrency is how many calls of a relay are under way at once.
const concurrency = 4

// printer tells the parent what happens, a line each.
type printer struct{ relay.Unobserved }

func (printer) Noticed(_ string, n relay.Notice) { fmt.Println("notice", n.Kind) }

// process is another process of the test.
type process struct {
	t    *testing.T
	args processArgs
	cmd  *exec.Cmd
	log  bytes.Buffer
	done chan struct{} // closed when it has ended

	mu    sync.Mutex
	lines []string
}

// start starts a process. At the end of the test it is killed if it still runs, and shown what it logged if the test failed.
func start(t *testing.T, args processArgs) *process {
	t.Helper()
	text, err := json.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, args: args, cmd: exec.CommandContext(context.Background(), self), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), argsEnv+"="+string(text))
	p.cmd.Stderr = &p.log
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			p.mu.Lock()
			p.lines = append(p.lines, lines.Text())
			p.mu.Unlock()
		}
		_ = p.cmd.Wait() // how it ended is asked for by those who care
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.done
		if t.Failed() {
			t.Logf("%s logged:\n%s", args.Name, p.log.String())
		}
	})
	return p
}

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatalf("%s: %v: %v", p.args.Name, s, err)
	}
}

// said returns how often the process has printed a line.
func (p *process) said(line string) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.lines {
		if l == line {
			n++
		}
	}
	return n
}

// starts returns how many calls of Deliver have begun.
func (p *process) starts() int { return p.said("deliver") }

// hear waits until the process has printed a line.
func (p *process) hear(line string) {
	p.t.Helper()
	eventually(p.t, p.args.Name+" says "+line, func() bool { return p.said(line) > 0 })
}

// dead tells whether the process has ended.
func (p *process) dead() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// killed waits until the process has ended itself, or was killed.
func (p *process) killed() {
	p.t.Helper()
	p.ended()
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !ok || status.Signal() != syscall.SIGKILL {
		p.t.Fatalf("%s ended with %v, want it killed %s", p.args.Name, p.cmd.ProcessState, p.args.Point)
	}
}

func (p *process) ended() {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(patience):
		p.t.Fatalf("%s still runs after %v", p.args.Name, patience)
	}
}

// stop stops a relay cleanly.
func (p *process) stop() {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	p.ended()
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		p.t.Errorf("%s ended with %v, want a clean stop", p.args.Name, p.cmd.ProcessState)
	}
}

// patience is how long anything may take before a test gives up.
const patience = 60 * time.Second

func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	if !within(patience, done) {
		t.Fatalf("not within %v: %s", patience, what)
	}
}

// within waits for something, but not for longer than that.
func within(limit time.Duration, done func() bool) bool {
	for began := time.Now(); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Since(began) > limit {
			return false
		}
	}
	return true
}
