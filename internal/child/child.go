// Package child runs a part of a demo as a process of its own, that can be killed and started again: the same program once more.
// It works in a Context, which ends with its standard input: so it never outlives the demo, however that ends.
package child

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

// Process is a process that may run. Its fields are required. Its methods may be called by several goroutines.
type Process struct {
	// Name is what errors call it.
	Name string
	// Command returns what is run.
	Command func() *exec.Cmd
	// Log is the file that gets what it says.
	Log string

	mu    sync.Mutex
	cmd   *exec.Cmd // nil: it does not run
	stdin io.Closer // its end is the process's end
	ended chan struct{}
	err   error // how it ended; to be read after ended
	kills int
}

// stopTimeout bounds a clean stop.
const stopTimeout = 10 * time.Second

// Start starts it.
func (p *Process) Start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	log, err := os.OpenFile(p.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the log of the %s: %w", p.Name, err)
	}
	defer func() { _ = log.Close() }() // the process has its own
	cmd := p.Command()
	cmd.Stdout, cmd.Stderr = log, log
	if p.stdin, err = cmd.StdinPipe(); err != nil {
		return fmt.Errorf("start the %s: %w", p.Name, err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the %s: %w", p.Name, err)
	}
	ended := make(chan struct{})
	p.cmd, p.ended = cmd, ended
	go func() { p.err = cmd.Wait(); close(ended) }()
	return nil
}

// Kill ends it as a power failure would: with SIGKILL, without a word.
func (p *Process) Kill() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return fmt.Errorf("kill the %s: it does not run", p.Name)
	}
	if err := p.cmd.Process.Kill(); err != nil {
		return fmt.Errorf("kill the %s: %w: %s", p.Name, err, p.lastWords())
	}
	<-p.ended
	p.cmd = nil
	p.kills++
	return nil
}

// Died returns an error when it has ended by itself.
func (p *Process) Died() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return nil
	}
	select {
	case <-p.ended:
		return fmt.Errorf("the %s has ended by itself (%s): %s", p.Name, p.cmd.ProcessState, p.lastWords())
	default:
		return nil
	}
}

// Stop ends it cleanly. A second stop does nothing.
func (p *Process) Stop() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return nil
	}
	_ = p.stdin.Close()
	select {
	case <-p.ended:
	case <-time.After(stopTimeout):
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
	p.cmd = nil
	if p.err != nil {
		return fmt.Errorf("the %s did not stop cleanly (%w): %s", p.Name, p.err, p.lastWords())
	}
	return nil
}

// Killed returns how often it was killed.
func (p *Process) Killed() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.kills
}

// lastWords is the end of its log.
func (p *Process) lastWords() string {
	text, err := os.ReadFile(p.Log)
	if err != nil {
		return err.Error()
	}
	text = bytes.TrimSpace(text)
	return string(text[max(0, len(text)-2000):])
}

// Context is for the process itself: it returns a context that ends when standard input does, and not when ctx does. Ctrl-C,
// which all processes of a terminal get, is for the demo: it wants its parts for the drain.
func Context(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	return ctx, stop
}
