package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pillarbox-dev/pillarbox/internal/config"
	"github.com/pillarbox-dev/pillarbox/ops"
)

func newReshard(a *app) *cobra.Command {
	var action ops.Action
	var shards int
	cmd := &cobra.Command{
		Use:   "reshard DESTINATION [--shards N] --reason TEXT",
		Short: "Divide a destination into another number of shards",
		Long: `reshard divides a destination into another number of shards, so that several relays work on it at once, each on the
events of some keys. Without --shards it takes the number that the configuration has for the destination. PostgreSQL only.

Nothing is lost and nothing leaves its order. All shards begin where the slowest of them was; what the others had delivered above
it is in the ledger and is not delivered again.

Stop the relays of the destination first, and start them again afterwards, with the new number as 'shards' in the configuration
of each. A relay with another number says so and does not work on the destination. Who did it and why is recorded.`,
		Example: `  pillarbox reshard events --reason "one process no longer keeps up"
  pillarbox reshard events --shards 1 --reason "it does again"`,
		Args: oneArg("the name of a destination"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if action.Reason == "" {
				return usageError{errors.New("--reason is missing: say why, for the next one who looks")}
			}
			return a.withOps(cmd, func(c *config.Config, o *ops.Ops) error {
				if !cmd.Flags().Changed("shards") {
					configured, known := c.Destinations[args[0]]
					if !known {
						return usageError{fmt.Errorf("%s is not in the configuration: say into how many shards with --shards", args[0])}
					}
					shards = configured.ShardCount()
				}
				r, err := o.Reshard(cmd.Context(), args[0], shards, action)
				if err != nil {
					return err
				}
				a.printf("%s has %s now, and had %d; all begin at %s, and the fastest was %s ahead: start its relays with shards: %d\n",
					args[0], shardsText(r.To), r.From, grouped(r.Position), grouped(r.Apart), r.To)
				return nil
			})
		},
	}
	cmd.Flags().IntVar(&shards, "shards", 0, "into how many (default: what the configuration says)")
	actionFlags(cmd, &action)
	return cmd
}

func shardsText(n int) string {
	if n == 1 {
		return "1 shard"
	}
	return fmt.Sprintf("%d shards", n)
}
