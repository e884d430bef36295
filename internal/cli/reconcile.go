package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pillarbox-dev/pillarbox/internal/config"
	"github.com/pillarbox-dev/pillarbox/internal/wire"
	"github.com/pillarbox-dev/pillarbox/ops"
)

func newReconcile(a *app) *cobra.Command {
	var asJSON, all bool
	var since string
	cmd := &cobra.Command{
		Use:   "reconcile",
		Short: "Compare the domain, the log, the ledgers and the inboxes of consumers",
		Long: `reconcile looks for what should not be: rows of your own queries (a change without its event, say), events that a
destination was to deliver and that its ledger does not know, deliveries whose event is gone, and what was published and is not
in a consumer's inbox. It changes nothing, and exits with 1 when something was found or a check could not be made.

What is compared stands in the configuration, under reconcile; the log and the ledgers are compared in any case. With
reconcile.every 'pillarbox run' does it on a schedule, and goes on each time where it ended the last time.

An event that passed a destination before its topics were widened, or while it kept no ledger, looks as if it was lost: look at
what is younger than that, with --since.`,
		Example: `  pillarbox reconcile
  pillarbox reconcile --since 2h --json | jq '.findings[] | {check, count, hint}'
  pillarbox reconcile --all`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			back, err := howFarBack(since, all)
			if err != nil {
				return err
			}
			c, err := a.load()
			if err != nil {
				return err
			}
			report, err := wire.Reconcile(cmd.Context(), c, back)
			if err != nil {
				return err
			}
			if asJSON {
				encoder := json.NewEncoder(a.out)
				encoder.SetIndent("", "  ")
				err = encoder.Encode(report)
			} else {
				a.printf("%s", reconcileText(report))
			}
			if err == nil && !report.Well() {
				err = errFound
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	cmd.Flags().StringVar(&since, "since", "", "look at what is younger than this, like 2h or 7d; by default "+
		"what reconcile.since says, or 24h")
	cmd.Flags().BoolVar(&all, "all", false, "look at all that the log retains")
	return cmd
}

// howFarBack returns 0 for what the configuration says, and a negative duration for all.
func howFarBack(since string, all bool) (time.Duration, error) {
	switch {
	case all && since != "":
		return 0, usageError{errors.New("--since and --all exclude each other: keep one of them")}
	case all:
		return -1, nil
	case since == "":
		return 0, nil
	}
	d, err := config.ParseDuration(since)
	if err == nil && d == 0 {
		err = errors.New("must be more than 0")
	}
	if err != nil {
		return 0, usageError{fmt.Errorf("--since is %q: it %w", since, err)}
	}
	return time.Duration(d), nil
}

// shownRows is how many rows of a finding are printed; --json has more.
const shownRows = 20

func reconcileText(r ops.ReconcileReport) string {
	t := table{}
	found := map[string]ops.Finding{}
	for _, f := range r.Findings {
		found[f.Check] = f
	}
	for _, check := range r.Checks {
		verdict := "ok"
		if f, some := found[check]; some {
			verdict = countText(ops.Count{N: f.Count, AtLeast: f.AtLeast}) + " found"
		}
		if text, failed := r.Errors[check]; failed {
			verdict = strings.TrimPrefix(verdict+", not made to the end: ", "ok, not made to the end: ") + text
		}
		t.add(check, verdict)
	}
	var b strings.Builder
	b.WriteString(t.String())
	for _, f := range r.Findings {
		fmt.Fprintf(&b, "\n%s", f.Check)
		if f.Hint != "" {
			fmt.Fprintf(&b, ": %s", f.Hint)
		}
		b.WriteString("\n")
		for _, row := range f.Rows[:min(len(f.Rows), shownRows)] {
			fmt.Fprintf(&b, "    %s\n", rowText(row))
		}
		if f.Count > shownRows {
			fmt.Fprintf(&b, "    … (--json shows up to 100)\n")
		}
	}
	return b.String()
}

func rowText(row map[string]any) string {
	var cells []string
	for _, column := range slices.Sorted(maps.Keys(row)) {
		cells = append(cells, fmt.Sprintf("%s=%v", column, row[column]))
	}
	return strings.Join(cells, " ")
}
