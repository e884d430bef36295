package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/pillarbox-dev/pillarbox/internal/child"
	"github.com/pillarbox-dev/pillarbox/internal/demo"
)

func newDemo(a *app) *cobra.Command {
	var duration time.Duration
	var asJSON bool
	var lie string
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show it at work, with nothing but this program",
		Long: `demo runs everything on this machine, in a temporary folder: a small service that commits and rolls back transactions with
events (SQLite), the relay, a process of its own that is killed with SIGKILL and restarted twice, and a receiver that verifies
signatures, keeps an inbox, and misbehaves on purpose: it answers 500, 503 and 422, answers too late, handles events and cuts
the connection instead of an answer, and one of its endpoints is a black hole.

After the given time, or at Ctrl-C, the service stops, the black hole is mended, and what is pending is drained. Then the
service's own record is held against the receiver's inbox and the relay's ledger. The exit status is 1 when something was lost,
false or out of order, or could not be drained within a minute.`,
		Example: `  pillarbox demo
  pillarbox demo --duration 1m
  pillarbox demo --duration 15s --json | jq .lost`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if duration < time.Second || duration > time.Hour {
				return usageError{fmt.Errorf("--duration is %v: it can be 1s to 1h", duration)}
			}
			r, err := demo.Run(cmd.Context(), demo.Options{
				Duration: duration, Relay: demoRelay, Progress: a.errOut, Terminal: isTerminal(a.errOut), Lie: demo.Lie(lie),
			})
			if r.Committed > 0 {
				err = errors.Join(err, r.Print(a.out, asJSON,
					"The black hole was mended before the drain: what had waited for it is in these numbers like everything else."))
			}
			return err
		},
	}
	cmd.Flags().DurationVar(&duration, "duration", 15*time.Second, "how long the service writes")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the reckoning as one JSON object")
	cmd.Flags().StringVar(&lie, "lie", "", "make the receiver break a promise: lost, false or out-of-order")
	_ = cmd.Flags().MarkHidden("lie") // for the test that sees the reckoning find it
	return cmd
}

// demoRelay is this program again, as the demo's relay.
func demoRelay(configFile string) *exec.Cmd {
	program, err := os.Executable()
	if err != nil {
		program = os.Args[0]
	}
	return exec.CommandContext(context.Background(), program, "demo-relay", "-c", configFile) // the demo ends it
}

// newDemoRelay is run, until standard input ends.
func newDemoRelay(a *app) *cobra.Command {
	return &cobra.Command{
		Use:    "demo-relay",
		Short:  "The relay of a demo",
		Hidden: true,
		Args:   noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := child.Context(cmd.Context())
			defer stop()
			cmd.SetContext(ctx)
			return (&run{}).run(cmd, a)
		},
	}
}

func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}
