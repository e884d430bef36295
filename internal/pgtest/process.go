package pgtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pillarbox-dev/pillarbox/internal/serverlog"
)

// Mode says how a server is taken down.
type Mode string

const (
	// Fast breaks connections off, rolls back and writes a checkpoint.
	Fast Mode = "fast"
	// Immediate is a crash: the next start replays the WAL.
	Immediate Mode = "immediate"
)

func (m Mode) signal() os.Signal {
	if m == Immediate {
		return syscall.SIGQUIT
	}
	return syscall.SIGINT
}

// process is a postmaster and the goroutine that waits for it.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
}

// Up starts a server that is down and returns when it accepts connections.
func (s *Server) Up() error {
	if s.process != nil {
		return nil
	}
	logStart := serverlog.Size(s.LogFile())
	p, err := s.launch()
	if err != nil {
		return fmt.Errorf("start PostgreSQL: %w", err)
	}
	s.process = p
	if err := s.awaitReady(p); err != nil {
		err = fmt.Errorf("start PostgreSQL: %w\n%s", err, serverlog.Tail(s.LogFile(), logStart))
		return errors.Join(err, s.Down(Immediate))
	}
	return nil
}

func (s *Server) launch() (*process, error) {
	log, err := os.OpenFile(s.LogFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd, err := command(s.bin, s.dir, "postgres", "-D", s.dataDir())
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, done: make(chan struct{})}
	go func() {
		cmd.Wait() // how it ended is in its log
		close(p.done)
	}()
	return p, nil
}

func (s *Server) awaitReady(p *process) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	for {
		conn, err := pgx.Connect(ctx, s.URL("postgres"))
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-p.done:
			return errors.New("the server ended at once; its log says why")
		case <-ctx.Done():
			return fmt.Errorf("no connection within %v: %w", startTimeout, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Down takes the server down and keeps its data, until the next Up. It does nothing to a server that is down.
func (s *Server) Down(mode Mode) error {
	p := s.process
	if p == nil {
		return nil
	}
	if err := p.cmd.Process.Signal(mode.signal()); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop PostgreSQL: %w", err)
	}
	select {
	case <-p.done:
		s.process = nil
		return nil
	case <-time.After(stopTimeout):
		return fmt.Errorf("PostgreSQL (process %d) did not stop within %v of the signal for a %s shutdown",
			p.cmd.Process.Pid, stopTimeout, mode)
	}
}

// guard outlives this process by a moment to clean up after it. It reads a pipe whose other end only this process holds:
// the read ends when this process closes it or dies, however it dies. Then the guard stops a server that still runs (it
// makes sure by the process's folder that the id was not handed to another process) and removes the folder.
type guard struct {
	cmd   *exec.Cmd
	alive io.Closer
}

const guardScript = `
cat >/dev/null
pid=$(head -n 1 "$2/postmaster.pid" 2>/dev/null)
if [ -n "$pid" ] && [ "/proc/$pid/cwd" -ef "$2" ]; then
	kill -QUIT "$pid"
	while kill -0 "$pid" 2>/dev/null; do sleep 0.05; done
fi
rm -rf "$1"
`

func startGuard(dir, data string) (*guard, error) {
	cmd := exec.Command("/bin/sh", "-c", guardScript, "pgtest-guard", dir, data)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	alive, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start the guard of PostgreSQL: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the guard of PostgreSQL: %w", err)
	}
	return &guard{cmd: cmd, alive: alive}, nil
}

// finish lets the guard clean up and waits for it.
func (g *guard) finish() error {
	if g.cmd.ProcessState != nil {
		return nil
	}
	g.alive.Close() // a second close says so, and does no harm
	if err := g.cmd.Wait(); err != nil {
		return fmt.Errorf("clean up after PostgreSQL: %w", err)
	}
	return nil
}
