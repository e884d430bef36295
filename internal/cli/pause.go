package cli

import (
	"cmp"
	"errors"
	"os"
	"os/user"

	"github.com/spf13/cobra"

	"github.com/pillarbox-dev/pillarbox/internal/config"
	"github.com/pillarbox-dev/pillarbox/ops"
)

func newPause(a *app) *cobra.Command {
	var action ops.Action
	cmd := &cobra.Command{
		Use:   "pause DESTINATION --reason TEXT",
		Short: "Stop deliveries to a destination until it is resumed",
		Long: `pause stops deliveries to a destination, whichever relay works on it and over restarts. A running relay heeds it within a
third of its lease; what is under way is finished. Events wait in the log. Who did it and why is recorded.`,
		Example: `  pillarbox pause suppliers --reason "their release, until 18:00"`,
		Args:    oneArg("the name of a destination"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if action.Reason == "" {
				return usageError{errors.New("--reason is missing: say why, for the next one who looks")}
			}
			return a.withOps(cmd, func(_ *config.Config, o *ops.Ops) error {
				if err := o.Pause(cmd.Context(), args[0], action); err != nil {
					return err
				}
				a.printf("%s is paused\n", args[0])
				return nil
			})
		},
	}
	actionFlags(cmd, &action)
	return cmd
}

func newResume(a *app) *cobra.Command {
	var action ops.Action
	cmd := &cobra.Command{
		Use:   "resume DESTINATION",
		Short: "Let a paused destination go on",
		Long: `resume lets a destination go on that an operator or the relay's guard has paused. A running relay heeds it within a third
of its lease. Who did it and why is recorded.`,
		Example: `  pillarbox resume suppliers --reason "the credential is renewed"`,
		Args:    oneArg("the name of a destination"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withOps(cmd, func(_ *config.Config, o *ops.Ops) error {
				if err := o.Resume(cmd.Context(), args[0], action); err != nil {
					return err
				}
				a.printf("%s goes on\n", args[0])
				return nil
			})
		},
	}
	actionFlags(cmd, &action)
	return cmd
}

func actionFlags(cmd *cobra.Command, action *ops.Action) {
	cmd.Flags().StringVar(&action.By, "by", osUser(), "who does it")
	cmd.Flags().StringVar(&action.Reason, "reason", "", "why")
}

func osUser() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return cmp.Or(os.Getenv("USER"), os.Getenv("LOGNAME"))
}
