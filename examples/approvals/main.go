// Command approvals is a service that keeps approvals and tells an audit store what becomes of them, with Pillarbox inside. It
// is a demo: it starts the service and an audit store, makes their lives hard for 20 seconds, and reckons. See README.md.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/pillarbox-dev/pillarbox/internal/child"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := (&program{stdout: os.Stdout, stderr: os.Stderr}).run(ctx, os.Args[1:])
	stop()
	if err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "approvals:", err)
		}
		os.Exit(1)
	}
}

// program is this program, with what a test may replace.
type program struct {
	stdout, stderr io.Writer
	seams          seams
}

// run is the demo, or one of its parts, each a process of its own.
func (p *program) run(ctx context.Context, args []string) error {
	if text := os.Getenv(settingsEnv); text != "" && len(args) == 1 {
		var s settings
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			return fmt.Errorf("the settings in %s: %w", settingsEnv, err)
		}
		ctx, stop := child.Context(ctx)
		defer stop()
		switch args[0] {
		case serviceRole, relayRole:
			return p.work(ctx, args[0], s)
		case auditRole:
			return serveAudit(ctx, s)
		}
	}
	o, err := parse(args, p.stderr)
	if err != nil {
		return err
	}
	r, notes, err := runDemo(ctx, o, p.stderr)
	if r.Committed > 0 {
		err = errors.Join(err, r.Print(p.stdout, o.json, notes...))
	}
	return err
}

// options are what the demo is asked for.
type options struct {
	database, listen string
	duration         time.Duration
	json, beside     bool
}

func parse(args []string, stderr io.Writer) (o options, err error) {
	f := flag.NewFlagSet("approvals", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.database, "database", "", "postgres://…, or the path of a SQLite file (default: one that is gone at the end)")
	f.StringVar(&o.listen, "listen", "127.0.0.1:0", "where the dashboard is; empty: nowhere")
	f.DurationVar(&o.duration, "duration", 20*time.Second, "how long the service writes")
	f.BoolVar(&o.json, "json", false, "print the reckoning as one JSON object")
	f.BoolVar(&o.beside, "relay-beside", false, "run the relay as a process of its own, and not inside the service")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	var problems []string
	if f.NArg() > 0 {
		problems = append(problems, "there are arguments that are no flags: "+strings.Join(f.Args(), " "))
	}
	if o.duration < time.Second || o.duration > time.Hour {
		problems = append(problems, fmt.Sprintf("--duration is %v: it can be 1s to 1h", o.duration))
	}
	if len(problems) > 0 {
		return o, errors.New(strings.Join(problems, "\n"))
	}
	return o, nil
}

// The parts that run as processes of their own, and the variable that holds what they are told: the URL of a database may hold a
// password, which a command line would show to everybody.
const (
	serviceRole = "service"
	relayRole   = "relay"
	auditRole   = "audit-core"
	settingsEnv = "APPROVALS_SETTINGS"
)

// settings are what a part is told.
type settings struct {
	Database string
	// AuditURL is where events go, TokenFile and SecretFile hold the credentials for it.
	AuditURL, TokenFile, SecretFile string
	// Lease is the relay's, Heartbeat the time between two of them; 0: none is written.
	Lease, Heartbeat time.Duration
	// Relay: the service has one inside. Dashboard: who has the relay serves it, at the socket that it inherits.
	Relay, Dashboard bool
	// Until is when the service stops writing. Its relay goes on until its standard input ends.
	Until time.Time
	// Store is the file of the audit store.
	Store string
}
