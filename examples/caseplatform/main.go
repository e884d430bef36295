// The case platform: a service that accepts cases, and the workflow engine that learns of it through Kafka. README.md tells the
// story.
//
//	POST /cases/{id}/accept                          relay            Kafka             workflow engine
//	┌───────────────────────────┐   ┌─────────┐   ┌──────────┐   ┌───────────┐   ┌─────────────────────────┐
//	│ case + audit log + answer │──▶│ the log │──▶│ contract │──▶│ lifecycle │──▶│ inbox + version guard   │
//	│ + CaseAccepted            │   └─────────┘   │ envelope │   └───────────┘   │ + projection + instance │
//	└───────────────────────────┘                 └──────────┘                   └─────────────────────────┘
//	      one transaction                                                               one transaction
//
// Reading order: cases.go and event.go are the service's part, service.go and relay.go its process, workflow.go the other side.
// demo.go, client.go, servers.go and settings.go let all of it run and hold the two sides against each other.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/pillarbox-dev/pillarbox/internal/child"
)

const usage = `The case platform: it accepts cases and tells a workflow engine through Kafka.

  go run ./examples/caseplatform [flags]            the whole story, on this machine; ends with a reckoning
    --duration 20s     how long clients work; 0: until Ctrl-C
    --json             the reckoning as one JSON object
    --listen ADDRESS   where the service and the dashboard are served; default 127.0.0.1:8071
    --database URL     PostgreSQL of the service; without it one is started
    --workflow-database URL   PostgreSQL of the workflow engine; default: the same database, in a schema of its own
    --brokers A,B      Kafka; without it a broker is started

  go run ./examples/caseplatform service [flags]    the service alone
    --database, --brokers, --listen, and
    --relay=false      the relay runs beside it: pillarbox run -c examples/caseplatform/pillarbox.yaml

DATABASE_URL, WORKFLOW_DATABASE_URL and KAFKA_BROKERS are the defaults of the flags.
Exit status: 0 every promise was kept, 1 one was broken or something failed, 2 the command line was not understood.
`

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// errUsage says that the command line was not understood.
var errUsage = errors.New("see --help")

func run(args []string, out, errOut io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	command := runDemo
	if len(args) > 0 && args[0] == "service" {
		command, args = runService, args[1:]
	}
	err := command(ctx, args, out, errOut)
	switch {
	case errors.Is(err, flag.ErrHelp):
		_, _ = io.WriteString(out, usage)
		return 0
	case err == nil:
		return 0
	}
	_, _ = fmt.Fprintf(errOut, "caseplatform: %v\n", err)
	if errors.Is(err, errUsage) {
		return 2
	}
	return 1
}

// settings say where things are.
type settings struct {
	database, workflow string // URLs of PostgreSQL
	brokers            []string
}

// flags are those that all commands have. parse fills in the settings.
type flags struct {
	*flag.FlagSet
	settings settings
	brokers  string
	listen   string
}

func newFlags() *flags {
	f := &flags{FlagSet: flag.NewFlagSet("caseplatform", flag.ContinueOnError)}
	f.SetOutput(io.Discard) // run prints errors and the usage
	f.StringVar(&f.settings.database, "database", os.Getenv("DATABASE_URL"), "")
	f.StringVar(&f.settings.workflow, "workflow-database", os.Getenv("WORKFLOW_DATABASE_URL"), "")
	f.StringVar(&f.brokers, "brokers", os.Getenv("KAFKA_BROKERS"), "")
	f.StringVar(&f.listen, "listen", "127.0.0.1:8071", "")
	return f
}

func (f *flags) parse(args []string) error {
	err := f.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return err
	case err != nil:
		return fmt.Errorf("%w: %w", err, errUsage)
	case f.NArg() > 0:
		return fmt.Errorf("%q is not known: %w", f.Arg(0), errUsage)
	}
	if f.settings.workflow == "" {
		f.settings.workflow = f.settings.database
	}
	if f.brokers != "" {
		f.settings.brokers = strings.Split(f.brokers, ",")
	}
	return nil
}

func runDemo(ctx context.Context, args []string, out, errOut io.Writer) error {
	f := newFlags()
	duration := f.Duration("duration", 20*time.Second, "")
	asJSON := f.Bool("json", false, "")
	if err := f.parse(args); err != nil {
		return err
	}
	if *duration != 0 && (*duration < time.Second || *duration > 24*time.Hour) {
		return fmt.Errorf("--duration is %v: it can be 1s to 24h: %w", *duration, errUsage)
	}
	r, err := demonstrate(ctx, &demo{settings: f.settings, listen: f.listen, duration: *duration, progress: errOut})
	if r.Committed == 0 {
		return err
	}
	var notes []string
	if r.RelayKills > 0 {
		notes = append(notes, "With each kill of the relay the service was killed too: clients asked again until they had an answer.")
	}
	return errors.Join(err, r.Print(out, *asJSON, notes...))
}

func runService(ctx context.Context, args []string, _, errOut io.Writer) error {
	f := newFlags()
	inside := f.Bool("relay", true, "")
	// These two are for the demo: it ends its service with its standard input, and lets transactions fail at the last moment.
	isChild := f.Bool("child", false, "")
	failEvery := f.Int64("fail-every", 0, "")
	if err := f.parse(args); err != nil {
		return err
	}
	if f.settings.database == "" || len(f.settings.brokers) == 0 && *inside {
		return fmt.Errorf("name the database with --database and Kafka with --brokers: %w", errUsage)
	}
	if *isChild {
		var stop context.CancelFunc
		ctx, stop = child.Context(ctx)
		defer stop()
	}
	s := newService(f.settings, slog.New(slog.NewTextHandler(errOut, nil)))
	s.listen, s.beside = f.listen, !*inside
	if *failEvery > 0 {
		s.beforeCommit = failing(*failEvery)
	}
	return s.run(ctx)
}

// failing fails each nth time.
func failing(every int64) func() error {
	var n atomic.Int64
	return func() error {
		if n.Add(1)%every == 0 {
			return errors.New("a transaction fails at the last moment, for the demo")
		}
		return nil
	}
}
