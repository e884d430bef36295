// Command bench measures Pillarbox, beside peers that do the same work in the same run on the same server.
//
//	go run ./bench drain|latency|http|kafka|debezium|blackhole|enqueue|operations|retention [flags] [--json]
//
// Without --database it starts a PostgreSQL of its own and stops it. The result goes to stdout, as a table or as one JSON
// object; what is under way goes to stderr. docs/benchmarks.md says what each figure means and how to run it again.
//
// The files: main (commands and flags), server (PostgreSQL, and a database for each measurement), log (the events), carry
// (the real relay under measurement), textbook (the yardstick), null and receiver (where events go), load (transactions at a
// steady rate), one file for each command, and report, stats, memory and profile for the figures.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// command is one of the benchmarks. flags registers what is its own and returns the measurement, which reads them.
type command struct {
	name, does string
	flags      func(*flag.FlagSet) measurement
	settings   map[string]string // of a server that is started, on top of everybody's
}

type measurement func(context.Context, *session) (*report, error)

func commands() []command {
	return []command{
		{"drain", "a full log to a null destination, beside the textbook relay", drainFlags, nil},
		{"latency", "commit to acknowledged at a steady rate, and one event at a time", latencyFlags, nil},
		{"http", "PostgreSQL to a signed HTTP receiver, beside the same client alone", httpFlags, nil},
		{"blackhole", "what one endpoint that never answers takes from nineteen others", blackholeFlags, nil},
		{"kafka", "PostgreSQL to a real Kafka, beside the textbook relay and the bare producer", kafkaFlags, nil},
		{"debezium", "the same beside Debezium's outbox event router", debeziumFlags, map[string]string{"wal_level": "logical"}},
		{"enqueue", "Enqueue beside a plain INSERT in the same transaction", enqueueFlags, nil},
		{"operations", "status, dashboard and API with ten million pending events and a full ledger", operationsFlags, nil},
		{"retention", "what deleting old events takes from producers at a steady rate", retentionFlags, map[string]string{"min_wal_size": "12GB"}},
	}
}

// run is the program without its process: it parses the arguments, measures, and prints.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) == 0 {
		usage(stderr)
		return errors.New("which benchmark? Name one of the above")
	}
	for _, c := range commands() {
		if c.name == args[0] {
			return c.run(ctx, args[1:], stdout, stderr)
		}
	}
	usage(stderr)
	return fmt.Errorf("there is no benchmark %q", args[0])
}

func usage(w io.Writer) {
	fmt.Fprintln(w, "usage: go run ./bench COMMAND [flags]    (flags of a command: go run ./bench COMMAND --help)")
	for _, c := range commands() {
		fmt.Fprintf(w, "  %-10s %s\n", c.name, c.does)
	}
}

func (c command) run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	flags := flag.NewFlagSet(c.name, flag.ContinueOnError)
	flags.SetOutput(stderr)
	var opts sessionOptions
	opts.register(flags)
	asJSON := flags.Bool("json", false, "print one JSON object instead of a table")
	measure := c.flags(flags)
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("%s takes flags only, not %q", c.name, flags.Args())
	}
	s, err := openSession(ctx, opts, c.settings, stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	r, err := measure(ctx, s)
	if err != nil {
		return fmt.Errorf("%s: %w", c.name, err)
	}
	r.about(c.name, s)
	if *asJSON {
		return r.writeJSON(stdout)
	}
	return r.writeTable(stdout)
}
