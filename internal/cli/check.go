package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/pillarbox-dev/pillarbox/internal/wire"
)

func newCheck(a *app) *cobra.Command {
	var show bool
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Tell everything that would keep run from working",
		Long: `check reads the configuration and connects to everything that it names: the database (is it there, migrated, are the
rights right?) and every destination (are the secret files there, does it answer, is its certificate good?). It delivers
nothing and changes nothing, tells all problems at once, each with what to do, and exits with 1 if there is one.

What it calls advice is no problem yet: dead rows that pile up, an old transaction, a bloated table.`,
		Example: `  pillarbox check
  pillarbox check --print`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.load()
			if err != nil {
				return err
			}
			if show {
				a.printf("%s\n", c)
			}
			return printFindings(a, append([]wire.Finding{{Part: "configuration", About: a.file}}, wire.Check(cmd.Context(), c)...))
		},
	}
	cmd.Flags().BoolVar(&show, "print", false, "print the configuration as it was understood, without secrets")
	return cmd
}

func printFindings(a *app, findings []wire.Finding) error {
	rows := table{}
	problems := 0
	for _, f := range findings {
		verdict := "ok"
		if len(f.Problems) > 0 {
			verdict = "NOT OK"
		}
		problems += len(f.Problems)
		rows.add(f.Part, verdict, f.About)
	}
	lines := strings.SplitAfter(rows.String(), "\n")
	for i, f := range findings {
		a.printf("%s", lines[i])
		for _, problem := range f.Problems {
			a.printf("    %s\n", indented(problem))
		}
		for _, advice := range f.Advice {
			a.printf("    advice: %s\n", advice)
		}
	}
	switch problems {
	case 0:
		return nil
	case 1:
		a.printf("1 problem\n")
	default:
		a.printf("%d problems\n", problems)
	}
	return errFound
}
