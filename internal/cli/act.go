package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pillarbox-dev/pillarbox/internal/config"
	"github.com/pillarbox-dev/pillarbox/internal/wire"
	"github.com/pillarbox-dev/pillarbox/ops"
)

// whatIsSeen says what the commands below act on.
const whatIsSeen = `

It acts on the delivery as it is at that moment. With --if-version it does so only if nothing has changed since you looked: the
version is the one that 'events show' printed. Who did it and why is recorded.`

func newRetry(a *app) *cobra.Command {
	return a.newAction(&cobra.Command{
		Use:   "retry DESTINATION SEQ|EVENT_ID",
		Short: "Set a failed or quarantined delivery going again",
		Long: `retry sets a delivery that is FAILED or QUARANTINED going again, from its first attempt. A running relay takes it within
a second. What has passed it meanwhile has passed it; what waits behind it in its lane goes on after it.` + whatIsSeen,
		Example: `  pillarbox retry suppliers 4711 --reason "they have mended it"`,
	}, "it goes again", func(ctx context.Context, o *ops.Ops, t ops.Target, action ops.Action) (ops.Delivery, error) {
		return o.Retry(ctx, t, action)
	})
}

func newDiscard(a *app) *cobra.Command {
	return a.newAction(&cobra.Command{
		Use:   "discard DESTINATION SEQ|EVENT_ID",
		Short: "Give a delivery up",
		Long: `discard gives a delivery up that is FAILED or QUARANTINED, or that is PENDING behind one of those. The destination does
not get the event; what waits behind it in its lane goes on. 'replay' delivers it after all.` + whatIsSeen,
		Example: `  pillarbox discard suppliers 4711 --reason "sent by hand, ticket 815"`,
	}, "it is given up", func(ctx context.Context, o *ops.Ops, t ops.Target, action ops.Action) (ops.Delivery, error) {
		return o.Discard(ctx, t, action)
	})
}

func newRepair(a *app) *cobra.Command {
	var r repairFlags
	cmd := a.newAction(&cobra.Command{
		Use:   "repair DESTINATION SEQ|EVENT_ID --payload FILE|-",
		Short: "Give an event another payload or other headers, and set its delivery going again",
		Long: `repair changes the payload or the headers of an event whose delivery is FAILED or QUARANTINED, and sets that delivery going
again. The new payload is held to the limits of the log and to its contract. The operators' log keeps what it was.

An event is the same for all destinations: who gets it from now on gets the new payload, and who has it already keeps the old
one.` + whatIsSeen,
		Example: `  pillarbox repair suppliers 4711 --header tenant=north --header source=till --reason "the tenant was missing"
  pillarbox events show 4711 --json | jq '.payload | .amount = 12' | pillarbox repair suppliers 4711 --payload -`,
	}, "it is repaired and goes again", func(ctx context.Context, o *ops.Ops, t ops.Target, by ops.Action) (ops.Delivery, error) {
		return o.Repair(ctx, t, r.repair, by)
	})
	cmd.Flags().StringVar(&r.payload, "payload", "", "the `FILE` with the new payload, JSON; - for standard input")
	cmd.Flags().StringVar(&r.payloadBytes, "payload-bytes", "", "the same for what is not JSON: the `FILE`, or - for standard input")
	cmd.Flags().StringArrayVar(&r.headers, "header", nil, "`NAME=VALUE` of a header, one flag for each; they replace all that there were")
	cmd.Flags().BoolVar(&r.noHeaders, "no-headers", false, "take all headers away")
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error { return r.read(cmd.InOrStdin()) }
	return cmd
}

// newAction completes a command that does something to one delivery.
func (a *app) newAction(cmd *cobra.Command, done string,
	do func(context.Context, *ops.Ops, ops.Target, ops.Action) (ops.Delivery, error)) *cobra.Command {
	var action ops.Action
	var version string
	var asJSON bool
	cmd.Args = twoArgs("a destination and the number or the id of an event")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.withOps(cmd, func(c *config.Config, o *ops.Ops) error {
			o, err := wire.WithContracts(o, c.Contracts)
			if err != nil {
				return err
			}
			t, err := findDelivery(cmd.Context(), o, args[0], args[1])
			if err != nil {
				return err
			}
			if version != "" {
				t.Version = version
			}
			now, err := do(cmd.Context(), o, t, action)
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(now)
			}
			a.printf("event %d to %s is %s: %s\n", now.Seq, now.Destination, now.Status, done)
			return nil
		})
	}
	actionFlags(cmd, &action)
	cmd.Flags().StringVar(&version, "if-version", "", "the `VERSION` that you saw")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the delivery as one JSON object")
	return cmd
}

// findDelivery looks the delivery up that somebody names.
func findDelivery(ctx context.Context, o *ops.Ops, destination, event string) (ops.Target, error) {
	e, err := showEvent(ctx, o, event)
	if err != nil {
		return ops.Target{}, err
	}
	if e.Archived {
		return ops.Target{}, fmt.Errorf("event %d is in the archive: it can no longer be acted upon", e.Seq)
	}
	var others []string
	for _, d := range e.Deliveries {
		if d.Destination == destination {
			return ops.Target{Destination: destination, Seq: e.Seq, Version: d.Version}, nil
		}
		others = append(others, d.Destination)
	}
	if len(others) == 0 {
		return ops.Target{}, fmt.Errorf("event %d goes to no destination: see 'pillarbox status' for those that there are", e.Seq)
	}
	return ops.Target{}, fmt.Errorf("event %d does not go to %q: it goes to %s", e.Seq, destination, strings.Join(others, ", "))
}

// repairFlags are what a repair is given as.
type repairFlags struct {
	payload, payloadBytes string // files
	headers               []string
	noHeaders             bool
	repair                ops.Repair
}

// read fills in the repair; what makes no sense together is refused with all problems at once.
func (r *repairFlags) read(in io.Reader) error {
	var problems []error
	if r.payload == "" && r.payloadBytes == "" && len(r.headers) == 0 && !r.noHeaders {
		problems = append(problems, errors.New("there is nothing to repair: give --payload, --payload-bytes, --header or --no-headers"))
	}
	if r.payload != "" && r.payloadBytes != "" {
		problems = append(problems,
			errors.New("--payload and --payload-bytes exclude each other: the first is for JSON, the second for anything else"))
	}
	if len(r.headers) > 0 && r.noHeaders {
		problems = append(problems, errors.New("--header and --no-headers exclude each other"))
	}
	if len(r.headers) > 0 || r.noHeaders {
		r.repair.Headers = map[string]string{}
	}
	for _, header := range r.headers {
		name, value, found := strings.Cut(header, "=")
		if !found {
			problems = append(problems, fmt.Errorf("--header %q has no =: write it like tenant=north", header))
		}
		r.repair.Headers[name] = value
	}
	if len(problems) > 0 {
		return usageError{errors.Join(problems...)}
	}
	if r.payload != "" {
		text, err := readInput(r.payload, in)
		if err != nil {
			return err
		}
		r.repair.Payload = bytes.TrimSpace(text) // an editor ends a file with a line break
	}
	if r.payloadBytes != "" {
		text, err := readInput(r.payloadBytes, in)
		if err != nil {
			return err
		}
		r.repair.PayloadBytes = append([]byte{}, text...) // an empty file is an empty payload, and not none
	}
	return nil
}

func readInput(file string, in io.Reader) ([]byte, error) {
	if file == "-" {
		text, err := io.ReadAll(in)
		if err != nil {
			return nil, fmt.Errorf("read the payload from standard input: %w", err)
		}
		return text, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the payload: %w", err)
	}
	return text, nil
}
