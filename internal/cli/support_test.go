package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// asProgram makes the test binary be pillarbox itself, in a process of its own that can be killed.
const asProgram = "PILLARBOX_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		os.Exit(Run(os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// run runs a command line in this process.
func runCLI(args ...string) (code int, out, errOut string) {
	var o, e bytes.Buffer
	code = Run(args, &o, &e)
	return code, o.String(), e.String()
}

// must runs a command line that has to succeed, and returns what it printed.
func must(t *testing.T, args ...string) string {
	t.Helper()
	code, out, errOut := runCLI(args...)
	if code != exitOK {
		t.Fatalf("pillarbox %s: exit status %d, want 0\n%s%s", strings.Join(args, " "), code, out, errOut)
	}
	return out
}

// write makes a file in a folder of the test's own.
func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// program is pillarbox in a process of its own. What it logs is JSON, one line each.
type program struct {
	t    *testing.T
	cmd  *exec.Cmd
	out  bytes.Buffer
	done chan struct{}

	mu  sync.Mutex
	log bytes.Buffer
}

// start starts it. It is killed at the end of the test, and its log shown if the test has failed.
func start(t *testing.T, args ...string) *program {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &program{t: t, cmd: exec.CommandContext(context.Background(), self, args...), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), asProgram+"=1")
	p.cmd.Stdout, p.cmd.Stderr = &p.out, p
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = p.cmd.Wait(); close(p.done) }()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("process %d logged:\n%s", p.cmd.Process.Pid, p.logged())
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

func (p *program) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// stop sends SIGTERM and returns the exit status.
func (p *program) stop() int {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Fatal(err)
	}
	return p.wait(20 * time.Second)
}

func (p *program) wait(most time.Duration) int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(most):
		p.t.Fatalf("the process has not ended within %v", most)
	}
	return p.cmd.ProcessState.ExitCode()
}

// lines returns the log's lines of one message.
func (p *program) lines(message string) (lines []map[string]any) {
	for line := range strings.Lines(p.logged()) {
		var fields map[string]any
		if json.Unmarshal([]byte(line), &fields) == nil && fields["msg"] == message {
			lines = append(lines, fields)
		}
	}
	return lines
}

// address is where it serves.
func (p *program) address() string {
	p.t.Helper()
	var address string
	within(p.t, 20*time.Second, "the process to listen", func() bool {
		for _, line := range p.lines("the relay starts") {
			address = fmt.Sprint(line["listen"])
		}
		return address != ""
	})
	return address
}

func (p *program) get(path string) (int, string) {
	p.t.Helper()
	request, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, "http://"+p.address()+path, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		p.t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return answer.StatusCode, string(body)
}

// within waits for something to come true.
func within(t *testing.T, most time.Duration, what string, true func() bool) {
	t.Helper()
	for deadline := time.Now().Add(most); !true(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v in vain for %s", most, what)
		}
	}
}
