package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/internal/cli"
	"github.com/pillarbox-dev/pillarbox/internal/pgtest"
	"github.com/pillarbox-dev/pillarbox/relay"
	"github.com/pillarbox-dev/pillarbox/relay/relaytest"
)

// asEnv makes the test binary be another program: caseplatform, pillarbox, or a service that kills itself.
const (
	asEnv          = "CASEPLATFORM_TEST_AS"
	asCasePlatform = "caseplatform"
	asPillarbox    = "pillarbox"
	asDoomed       = "doomed"
)

func TestMain(m *testing.M) {
	switch os.Getenv(asEnv) {
	case asCasePlatform:
		os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
	case asPillarbox:
		os.Exit(cli.Run(os.Args[1:], os.Stdout, os.Stderr))
	case asDoomed:
		if err := runDoomed(context.Background(), os.Args[1]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	default:
		os.Exit(m.Run())
	}
}

// doom says where a service kills itself: at a point of the relay inside it, or at one of its own.
type doom struct {
	Database, Listen string
	Brokers          []string
	Point            relaytest.Point
	Nth              int
}

const (
	beforeCommit = relaytest.Point("before commit")
	beforeAnswer = relaytest.Point("after commit, before the answer")
)

func runDoomed(ctx context.Context, text string) error {
	var d doom
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		return err
	}
	s := newService(settings{database: d.Database, brokers: d.Brokers}, slog.New(slog.NewTextHandler(os.Stderr, nil)))
	s.listen = d.Listen
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer stop()
	if d.Point == "" {
		return s.run(ctx)
	}
	crash := relaytest.CrashAt(d.Point, d.Nth, func() { _ = syscall.Kill(os.Getpid(), syscall.SIGKILL); select {} })
	s.beforeCommit = func() error { return crash(ctx, beforeCommit) }
	s.around = func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			next.ServeHTTP(w, req)
			_ = crash(ctx, beforeAnswer) // what was written is still in this process
		})
	}
	s.withRelay = func(c *relay.Config) {
		c.Store = relaytest.FaultyStore(c.Store, crash)
		c.Destinations[0].Destination = relaytest.FaultyDestination(c.Destinations[0].Destination, crash)
	}
	return s.run(ctx)
}

// program is another process of a test.
type program struct {
	t    *testing.T
	cmd  *exec.Cmd
	out  bytes.Buffer
	done chan struct{}

	mu  sync.Mutex
	log bytes.Buffer
}

// start starts the test binary as another program. At the end of the test it is killed if it still runs, and what it logged is
// shown if the test has failed.
func start(t *testing.T, as string, env []string, args ...string) *program {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	p := &program{t: t, cmd: exec.CommandContext(context.Background(), self, args...), done: make(chan struct{})}
	p.cmd.Env = append(append(os.Environ(), env...), asEnv+"="+as)
	p.cmd.Stdout, p.cmd.Stderr = &p.out, p
	must(t, p.cmd.Start())
	go func() { _ = p.cmd.Wait(); close(p.done) }() // how it ended is asked for by those who care
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			log := p.logged()
			t.Logf("%s %v logged:\n%s", as, args, log[max(0, len(log)-6000):])
		}
	})
	return p
}

// Write takes what the process logs.
func (p *program) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.Write(text)
}

func (p *program) logged() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// kill ends it with SIGKILL.
func (p *program) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// wait waits for its end and returns the exit status; -1 if a signal ended it.
func (p *program) wait(most time.Duration) int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(most):
		p.t.Fatalf("%v has not ended within %v", p.cmd.Args, most)
	}
	return p.cmd.ProcessState.ExitCode()
}

// stop ends it with SIGTERM and returns the exit status.
func (p *program) stop() int {
	p.t.Helper()
	must(p.t, p.cmd.Process.Signal(syscall.SIGTERM))
	return p.wait(30 * time.Second)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// within waits for something to come true.
func within(t *testing.T, most time.Duration, what string, true func() bool) {
	t.Helper()
	for deadline := time.Now().Add(most); !true(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v in vain: %s", most, what)
		}
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	return l.Addr().String()
}

// The whole story, as somebody sees it who has just cloned the repository: it brings its servers, kills its service twice and its
// broker once, keeps every promise, and says so in these keys.
func TestDemo(t *testing.T) {
	address := freeAddress(t)
	p := start(t, asCasePlatform, nil, "--duration", "8s", "--json", "--listen", address)
	within(t, time.Minute, "the dashboard shows the destination", func() bool { return shows(t, address, destinationName) })
	if code := p.wait(90 * time.Second); code != 0 {
		t.Errorf("exit status %d, want 0", code)
	}
	var r map[string]float64
	if err := json.Unmarshal(p.out.Bytes(), &r); err != nil {
		t.Fatalf("standard output is no JSON object of numbers: %v\n%s", err, p.out.String())
	}
	keys := strings.Fields("committed delivered duplicates false lost out_of_order quarantined relay_kills rolled_back seconds")
	if got := slices.Sorted(maps.Keys(r)); !slices.Equal(got, keys) {
		t.Errorf("keys = %q, want %q", got, keys)
	}
	if r["lost"]+r["false"]+r["out_of_order"]+r["quarantined"] != 0 || r["delivered"] != r["committed"] {
		t.Errorf("reckoning = %v, want every promise kept", r)
	}
	if r["committed"] < 100 || r["rolled_back"] < 5 || r["relay_kills"] != 2 {
		t.Errorf("reckoning = %v, want that much happened", r)
	}
	for _, want := range []string{"the Kafka broker is killed", "the Kafka broker starts again", "what is under way arrives"} {
		if !strings.Contains(p.logged(), want) {
			t.Errorf("the story lacks %q", want)
		}
	}
}

// shows tells whether the page at an address says something.
func shows(t *testing.T, address, what string) bool {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/", nil)
	must(t, err)
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	defer answer.Body.Close()
	page, err := io.ReadAll(answer.Body)
	return err == nil && answer.StatusCode == http.StatusOK && bytes.Contains(page, []byte(what))
}

// A service that cannot listen says what to do, and ends.
func TestTakenAddress(t *testing.T) {
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	defer taken.Close()
	var out, errOut bytes.Buffer
	code := run([]string{"service", "--listen", taken.Addr().String(), "--database", pgtest.Database(t), "--brokers", "127.0.0.1:1"},
		&out, &errOut)
	if code != 1 || !strings.Contains(errOut.String(), "choose another address with --listen") {
		t.Errorf("exit status %d, want 1 and a hint; it says:\n%s", code, errOut.String())
	}
}

func TestUsage(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"--help"}, 0, ""},
		{[]string{"--durattion", "1s"}, 2, "flag provided but not defined: -durattion: see --help"},
		{[]string{"--duration", "1ms"}, 2, "it can be 1s to 24h"},
		{[]string{"sevice"}, 2, `"sevice" is not known`},
		{[]string{"service", "--database", "", "--brokers", ""}, 2, "name the database with --database and Kafka with --brokers"},
	} {
		var out, errOut bytes.Buffer
		code := run(c.args, &out, &errOut)
		if code != c.code || !strings.Contains(errOut.String(), c.says) {
			t.Errorf("%q: exit status %d, want %d; it says %q, want %q", c.args, code, c.code, errOut.String(), c.says)
		}
		if help := code == 0; help != strings.Contains(out.String(), "go run ./examples/caseplatform") {
			t.Errorf("%q: prints %q", c.args, out.String())
		}
	}
}
