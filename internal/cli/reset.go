package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/pillarbox-dev/pillarbox/internal/config"
	"github.com/pillarbox-dev/pillarbox/ops"
)

func newResetCursor(a *app) *cobra.Command {
	var action ops.Action
	var from int64
	cmd := &cobra.Command{
		Use:   "reset-cursor DESTINATION --reason TEXT",
		Short: "Let a destination begin the log again, after its numbers went back",
		Long: `reset-cursor is for a log whose numbers went back: outbox_event was truncated with RESTART IDENTITY, or restored from a
backup without the cursors. A relay then stops with "the numbers of the log went back".

The destination begins again at the beginning of the log, or at --from-seq. What its ledger says of that number and later ones is
forgotten, because it may be about other events, and all of them are delivered again: receivers dedupe by the event id. Nothing is
skipped. To deliver some events again while all is well, use 'pillarbox replay'.

Stop the relays of the destination first, and start them again afterwards. Who did it and why is recorded.`,
		Example: `  pillarbox reset-cursor suppliers --reason "outbox_event was truncated by the test of the restore"
  pillarbox reset-cursor suppliers --from-seq 81234 --reason "restored up to 81233"`,
		Args: oneArg("the name of a destination"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if action.Reason == "" {
				return usageError{errors.New("--reason is missing: say why, for the next one who looks")}
			}
			return a.withOps(cmd, func(_ *config.Config, o *ops.Ops) error {
				r, err := o.ResetCursor(cmd.Context(), args[0], from, action)
				if err != nil {
					return err
				}
				a.printf("%s begins again at %d; it stood at %s, and %s rows of its ledger are forgotten: start its relays\n",
					args[0], r.To+1, grouped(r.From), grouped(r.Forgotten))
				return nil
			})
		},
	}
	cmd.Flags().Int64Var(&from, "from-seq", 1, "the first number that is delivered again")
	actionFlags(cmd, &action)
	return cmd
}
