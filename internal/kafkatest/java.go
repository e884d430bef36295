package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// process is a JVM and the goroutine that waits for it.
type process struct {
	pid  int
	done chan struct{} // closed when it has ended
}

// startJava starts a JVM whose output goes to a file. It dies with this process: the kernel sends the signal when the thread that
// started it ends, so that thread waits for it.
func startJava(dir, logFile string, args []string) (*process, error) {
	log, err := os.OpenFile(logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.CommandContext(context.Background(), "java", args...)
	cmd.Dir = dir
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	p := &process{done: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if err == nil {
			p.pid = cmd.Process.Pid
		}
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended is in its log
		}
		close(p.done)
	}()
	return p, <-started
}

// end sends the signal and waits.
func (p *process) end(signal syscall.Signal) error {
	if err := syscall.Kill(p.pid, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("stop Kafka: %w", err)
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(stopTimeout):
		return fmt.Errorf("process %d of Kafka did not stop within %v of the signal %v", p.pid, stopTimeout, signal)
	}
}

// writeProperties writes a file as Java reads it.
func writeProperties(file string, settings map[string]string) error {
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&text, "%s=%s\n", name, settings[name])
	}
	return os.WriteFile(file, []byte(text.String()), 0o644)
}

// writeLogging lets a JVM of that folder log to its output.
func writeLogging(dir string) error {
	const logging = "rootLogger.level = info\nrootLogger.appenderRef.out.ref = out\nappender.out.type = Console\n" +
		"appender.out.name = out\nappender.out.layout.type = PatternLayout\nappender.out.layout.pattern = %d %p %c{1} %m%n\n"
	return os.WriteFile(filepath.Join(dir, "log4j2.properties"), []byte(logging), 0o644)
}
