package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pillarbox-dev/pillarbox/internal/config"
	"github.com/pillarbox-dev/pillarbox/internal/wire"
	"github.com/pillarbox-dev/pillarbox/ops"
)

func newRetention(a *app) *cobra.Command {
	var asJSON, dryRun bool
	cmd := &cobra.Command{
		Use:   "retention",
		Short: "Delete or archive what is old and settled",
		Long: `retention goes once through the log and takes away what is older than the rules of the configuration (retention) say: it deletes
the event and its deliveries, or moves them to the archive tables. 'pillarbox run' does the same on a schedule.

Only what every destination is done with goes: what lies below all cursors, and is PUBLISHED or DISCARDED wherever it has a
row. FAILED and QUARANTINED stay, however old. A destination of the configuration that has not begun yet, a cursor that
nobody moves any more, and a replay that is not at its end hold it back, and it says so.

It works in small transactions with a rest between them; it can be stopped and started at any time.`,
		Example: `  pillarbox retention --dry-run
  pillarbox retention --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.load()
			if err != nil {
				return err
			}
			if len(c.Retention.Rules) == 0 {
				return errors.New("the configuration has no rules for it, so everything is kept: add retention: {rules: [{after: 30d}]}")
			}
			report, err := wire.Retain(cmd.Context(), c, dryRun)
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(report)
			}
			a.printf("%s", retentionText(c, report, dryRun))
			return nil
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "say what would go, and change nothing")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

func retentionText(c *config.Config, r ops.RetentionReport, dryRun bool) string {
	var b strings.Builder
	verb := "were"
	if dryRun {
		verb = "would be"
	}
	fmt.Fprintf(&b, "%s events %s deleted, %s moved to the archive, in %s\n", grouped(r.Events-r.Archived), verb, grouped(r.Archived),
		ageText(r.Took))
	if r.Kept > 0 {
		fmt.Fprintf(&b, "%s are old enough and stay: they are not settled everywhere\n", grouped(r.Kept))
	}
	_, configured := c.Destinations[r.HeldBy]
	switch {
	case r.HeldBy == "":
		b.WriteString("nothing goes yet: no destination has begun\n")
	case r.Horizon == 0 && configured:
		fmt.Fprintf(&b, "nothing goes yet: %s has not begun, and will want it all\n", r.HeldBy)
	default:
		fmt.Fprintf(&b, "nothing above number %s is touched, where %s stands\n", grouped(r.Horizon), r.HeldBy)
	}
	return b.String()
}
