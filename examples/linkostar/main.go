// Command linkostar is a hub platform that tells its suppliers about hubs, devices and activations, with Pillarbox inside.
// Without flags it is a demo: it starts four suppliers, works for 20 seconds, and reckons. See README.md.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/pillarbox-dev/pillarbox/examples/linkostar/platform"
	"github.com/pillarbox-dev/pillarbox/examples/linkostar/supplier"
	"github.com/pillarbox-dev/pillarbox/internal/child"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := (&program{stdout: os.Stdout, stderr: os.Stderr}).run(ctx, os.Args[1:])
	stop()
	if err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "linkostar:", err)
		}
		os.Exit(1)
	}
}

// program is this program, with what a test may replace.
type program struct {
	stdout, stderr io.Writer
	seams          seams
}

type options struct {
	database, config, listen, node string
	duration                       time.Duration
	json                           bool
	serviceOnly, relayOnly, beside bool
	stdin                          bool
}

func (p *program) run(ctx context.Context, args []string) error {
	if len(args) == 2 && args[0] == "suppliers" {
		return p.suppliers(ctx, args[1])
	}
	o, err := parse(args, p.stderr)
	if err != nil {
		return err
	}
	if o.stdin {
		var stop context.CancelFunc
		ctx, stop = child.Context(ctx)
		defer stop()
	}
	if o.config != "" {
		return p.work(ctx, o)
	}
	r, err := runDemo(ctx, o, p.stderr)
	if r.Committed > 0 {
		err = errors.Join(err, r.Print(p.stdout, o.json,
			"FAILED rows were tried again until they were SYNCED or SENT. What a supplier refused is quarantined here,",
			"and DEAD or REJECTED_BALANCE in the platform's own rows."))
	}
	return err
}

func parse(args []string, stderr io.Writer) (o options, err error) {
	f := flag.NewFlagSet("linkostar", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.database, "database", "", "postgres://…, or the path of a SQLite file (default: one that is gone at the end)")
	f.StringVar(&o.config, "config", "", "work with these suppliers, until --duration or Ctrl-C; default: those of the demo")
	f.StringVar(&o.listen, "listen", "127.0.0.1:0", "where the dashboard is; empty: nowhere")
	f.StringVar(&o.node, "node", "examples/linkostar/supplier/node", "the folder of the demo's supplier in Node.js")
	f.DurationVar(&o.duration, "duration", 20*time.Second, "how long it writes")
	f.BoolVar(&o.json, "json", false, "print the reckoning as one JSON object")
	f.BoolVar(&o.serviceOnly, "service-only", false, "write, and leave delivering to a process with --relay-only; needs --config")
	f.BoolVar(&o.relayOnly, "relay-only", false, "deliver until Ctrl-C, and write nothing; needs --config")
	f.BoolVar(&o.beside, "relay-beside", false, "run the demo's relay as a process of its own, and kill it twice")
	f.BoolVar(&o.stdin, "stdin", false, "end with the standard input")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	var problems []string
	bad := func(wrong bool, text string) {
		if wrong {
			problems = append(problems, text)
		}
	}
	bad(f.NArg() > 0, "there are arguments that are no flags: "+strings.Join(f.Args(), " "))
	bad(o.duration < time.Second || o.duration > time.Hour, "--duration can be 1s to 1h")
	bad(o.serviceOnly && o.relayOnly, "--service-only and --relay-only exclude each other: without both it does both")
	bad((o.serviceOnly || o.relayOnly) && o.config == "",
		"--service-only and --relay-only need --config and --database, of both the same")
	bad(o.config != "" && o.database == "", "--config needs --database")
	bad(o.config != "" && o.beside, "--relay-beside is for the demo: with --config use --service-only and --relay-only")
	if len(problems) > 0 {
		return o, errors.New(strings.Join(problems, "\n"))
	}
	return o, nil
}

// work is the platform, its relay, or both, with suppliers that are there.
func (p *program) work(ctx context.Context, o options) error {
	c, err := loadConfig(o.config)
	if err != nil {
		return err
	}
	d, err := openDatabase(ctx, o.database)
	if err != nil {
		return err
	}
	defer d.Close()
	log := slog.New(slog.NewTextHandler(p.stderr, nil))
	if o.relayOnly {
		carrier, err := newCarrier(ctx, d, c, p.seams, o.listen, log)
		if err != nil {
			return err
		}
		return carrier.run(ctx)
	}
	wake, stopRelay := func() {}, func() error { return nil } // a relay beside polls, or is notified
	if !o.serviceOnly {
		carrier, err := newCarrier(ctx, d, c, p.seams, o.listen, log)
		if err != nil {
			return err
		}
		wake, stopRelay = carrier.relay.Wake, carrier.start(ctx)
	}
	service, err := newService(d, p.seams, wake)
	if err != nil {
		return errors.Join(err, stopRelay())
	}
	writing, stop := context.WithTimeout(ctx, o.duration)
	defer stop()
	w := &workload{platform: service, suppliers: c.Suppliers}
	if err := errors.Join(w.run(writing), stopRelay()); err != nil {
		return err
	}
	counts, err := platform.NewRecords(d.DB, d.dialect).Counts(context.WithoutCancel(ctx))
	_, printErr := fmt.Fprintln(p.stdout, counted(counts))
	return errors.Join(err, printErr)
}

// counted words the statuses of all rows.
func counted(counts []platform.Count) string {
	words := map[string]string{"hub_instance": "hubs", "device_instance": "devices", "device_activation_event": "activations"}
	var text []string
	table := ""
	for _, c := range counts {
		if c.Table != table {
			table = c.Table
			text = append(text, words[table]+":")
		}
		text = append(text, fmt.Sprintf("%s %d", c.Status, c.Rows))
	}
	if text == nil {
		return "nothing yet"
	}
	return strings.Join(text, " ")
}

// suppliers is the process of the demo's suppliers in Go. It inherits its socket, and ends with its standard input.
func (p *program) suppliers(ctx context.Context, settings string) error {
	var c supplier.Config
	if err := json.Unmarshal([]byte(settings), &c); err != nil {
		return fmt.Errorf("the suppliers' settings: %w", err)
	}
	listener, err := net.FileListener(os.NewFile(3, "socket"))
	if err != nil {
		return fmt.Errorf("the suppliers' socket: %w", err)
	}
	ctx, stop := child.Context(ctx)
	defer stop()
	return supplier.Serve(ctx, listener, c, slog.New(slog.NewTextHandler(p.stderr, nil)))
}
