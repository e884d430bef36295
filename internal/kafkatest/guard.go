package kafkatest

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"syscall"
)

// guard outlives this process by a moment to remove the folder: it reads a pipe whose other end only this process holds, which
// ends when this process closes it or dies, however it dies. The brokers are dead then: see launch.
type guard struct {
	cmd   *exec.Cmd
	alive io.Closer
}

const guardScript = `
cat >/dev/null
for try in 1 2 3 4 5 6 7 8 9; do
	rm -rf "$1" 2>/dev/null && exit 0
	sleep 0.2
done
rm -rf "$1"
`

func startGuard(dir string) (*guard, error) {
	cmd := exec.CommandContext(context.Background(), "/bin/sh", "-c", guardScript, "kafkatest-guard", dir)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	alive, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start the guard of Kafka: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the guard of Kafka: %w", err)
	}
	return &guard{cmd: cmd, alive: alive}, nil
}

// finish lets the guard clean up and waits for it.
func (g *guard) finish() error {
	if g.cmd.ProcessState != nil {
		return nil
	}
	_ = g.alive.Close() // a second close says so, and does no harm
	if err := g.cmd.Wait(); err != nil {
		return fmt.Errorf("clean up after Kafka: %w", err)
	}
	return nil
}
