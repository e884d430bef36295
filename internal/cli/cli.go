// Package cli is the command line of Pillarbox: one file for each command. It parses, prints, and leaves the work to others.
//
// Exit status: 0 all is well; 1 something was found or failed; 2 the command was not understood. Results go to standard output;
// errors, logs and the live view go to standard error.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pillarbox-dev/pillarbox/internal/config"
	"github.com/pillarbox-dev/pillarbox/internal/wire"
	"github.com/pillarbox-dev/pillarbox/ops"
)

// The exit statuses.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// app is what the commands share.
type app struct {
	file        string // -c
	out, errOut io.Writer
}

// Run runs one command line and returns the exit status. The first SIGINT or SIGTERM ends the command cleanly, the second one ends
// the process.
func Run(args []string, out, errOut io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // from then on the signals do what they do by default
	results := &writer{w: out}
	root := newRoot(&app{out: results, errOut: errOut})
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil && results.err != nil {
		err = fmt.Errorf("write the result: %w", results.err)
	}
	report(errOut, err)
	return status(err)
}

// writer remembers that a write failed: half a result is none.
type writer struct {
	w   io.Writer
	err error
}

func (w *writer) Write(text []byte) (int, error) {
	n, err := w.w.Write(text)
	if w.err == nil {
		w.err = err
	}
	return n, err
}

func status(err error) int {
	var usage usageError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &usage):
		return exitUsage
	}
	return exitFailed
}

// usageError says that the command line was not understood.
type usageError struct{ error }

// errFound says that what was found has been told already.
var errFound = errors.New("problems were found")

// report prints an error: one line, or a line for each problem.
func report(w io.Writer, err error) {
	if err == nil || errors.Is(err, errFound) {
		return
	}
	problems := config.Each(err)
	if len(problems) == 1 {
		_, _ = fmt.Fprintf(w, "pillarbox: %s\n", indented(problems[0]))
		return
	}
	_, _ = fmt.Fprintf(w, "pillarbox: %d problems\n", len(problems))
	for _, problem := range problems {
		_, _ = fmt.Fprintf(w, "  %s\n", indented(problem))
	}
}

// indented keeps the further lines of a message apart from the next message. A line that the next one begins with says nothing
// of its own: a database that is tried with and without TLS fails twice in the same words.
func indented(err error) string {
	var lines []string
	for line := range strings.Lines(err.Error()) {
		line = strings.TrimSpace(line)
		if last := len(lines) - 1; last >= 0 && strings.HasPrefix(line, lines[last]) {
			lines = lines[:last]
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n    ")
}

const longHelp = `Pillarbox carries the events of a transactional outbox to other systems: at least once, in order per key,
never an event of a transaction that was rolled back.

A service writes events in its own transactions (package outbox, or plain SQL); 'pillarbox run' delivers them.

Exit status: 0 all is well, 1 something was found or failed, 2 the command line was not understood.`

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "pillarbox",
		Short: "A transactional outbox",
		Long:  longHelp,
		Example: `  pillarbox demo                     see it work, with nothing but this program
  pillarbox init                     write a pillarbox.yaml that explains itself
  pillarbox migrate && pillarbox check && pillarbox run`,
		Args:          noCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetOut(a.out)
	root.SetErr(a.errOut)
	root.SetFlagErrorFunc(flagError)
	root.CompletionOptions.HiddenDefaultCmd = true
	root.PersistentFlags().StringVarP(&a.file, "config", "c", "pillarbox.yaml", "the configuration `FILE`")
	root.AddCommand(newInit(a), newMigrate(a), newCheck(a), newContract(a), newRun(a), newStatus(a), newPause(a), newResume(a),
		newReconcile(a), newResetCursor(a), newReshard(a),
		newEvents(a), newRetry(a), newDiscard(a), newRepair(a), newLog(a), newReplay(a), newJobs(a), newRetention(a),
		newDemo(a), newDemoRelay(a), newVersion(a))
	return root
}

// noCommand is called with what is no command.
func noCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, c := range cmd.Commands() {
		if !c.Hidden {
			names = append(names, c.Name())
		}
	}
	return usageError{fmt.Errorf("unknown command %q: %s", args[0], config.DidYouMean(args[0], names))}
}

// flagError adds what was probably meant to an error about a flag.
func flagError(cmd *cobra.Command, err error) error {
	hint := "see '" + cmd.CommandPath() + " --help'"
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) {
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				names = append(names, "--"+f.Name)
			}
		})
		hint = config.DidYouMean("--"+unknown.GetSpecifiedName(), names)
	}
	return usageError{fmt.Errorf("%w: %s", err, hint)}
}

// noArgs, oneArg and twoArgs count arguments.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError{fmt.Errorf("'%s' takes no argument, and %q is one: see '%s --help'",
			cmd.CommandPath(), args[0], cmd.CommandPath())}
	}
	return nil
}

func oneArg(what string) cobra.PositionalArgs { return exactArgs(1, what) }

func twoArgs(what string) cobra.PositionalArgs { return exactArgs(2, what) }

func exactArgs(n int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != n {
			return usageError{fmt.Errorf("'%s' takes %s, and there are %d arguments: see '%s --help'",
				cmd.CommandPath(), what, len(args), cmd.CommandPath())}
		}
		return nil
	}
}

func (a *app) load() (*config.Config, error) { return config.Load(a.file) }

// withOps opens the database of the configuration for an operator.
func (a *app) withOps(cmd *cobra.Command, do func(*config.Config, *ops.Ops) error) error {
	c, err := a.load()
	if err != nil {
		return err
	}
	o, closeDB, err := wire.OpenOps(cmd.Context(), c.Database)
	if err != nil {
		return err
	}
	defer closeDB()
	return do(c, o)
}

// printf prints a result. A failure comes out at the end of Run.
func (a *app) printf(format string, args ...any) { _, _ = fmt.Fprintf(a.out, format, args...) }
