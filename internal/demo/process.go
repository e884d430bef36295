package demo

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

// relayProcess is the relay, a process of its own.
type relayProcess struct {
	command func() *exec.Cmd
	log     string // the file that gets what it says

	mu    sync.Mutex
	cmd   *exec.Cmd // nil: it does not run
	stdin io.Closer // its end is the process's end
	ended chan struct{}
	err   error // how it ended; to be read after ended
	kills int
}

// stopTimeout bounds a clean stop of the relay.
const stopTimeout = 10 * time.Second

func (p *relayProcess) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the relay's log: %w", err)
	}
	defer func() { _ = log.Close() }() // the process has its own
	cmd := p.command()
	cmd.Stdout, cmd.Stderr = log, log
	if p.stdin, err = cmd.StdinPipe(); err != nil {
		return fmt.Errorf("start the relay: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the relay: %w", err)
	}
	ended := make(chan struct{})
	p.cmd, p.ended = cmd, ended
	go func() { p.err = cmd.Wait(); close(ended) }()
	return nil
}

// kill ends the relay as a power failure would: with SIGKILL, without a word.
func (p *relayProcess) kill() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return errors.New("kill the relay: it does not run")
	}
	if err := p.cmd.Process.Kill(); err != nil {
		return fmt.Errorf("kill the relay: %w: %s", err, p.lastWords())
	}
	<-p.ended
	p.cmd = nil
	p.kills++
	return nil
}

// died returns an error when the relay has ended by itself.
func (p *relayProcess) died() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return nil
	}
	select {
	case <-p.ended:
		return fmt.Errorf("the relay has ended by itself (%s): %s", p.cmd.ProcessState, p.lastWords())
	default:
		return nil
	}
}

// stop ends the relay cleanly. A second stop does nothing.
func (p *relayProcess) stop() error {
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
		return fmt.Errorf("the relay did not stop cleanly (%w): %s", p.err, p.lastWords())
	}
	return nil
}

func (p *relayProcess) killed() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.kills
}

// lastWords is the end of its log.
func (p *relayProcess) lastWords() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	text = bytes.TrimSpace(text)
	return string(text[max(0, len(text)-2000):])
}
