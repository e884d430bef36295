package cli

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/pillarbox-dev/pillarbox/contract"
)

func newContract(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "contract",
		Short: "Work with the schemas that events are held to",
		Long: `The folder of contracts (contracts.dir in the configuration) holds a JSON Schema SCHEMA_REF.json for each schema_ref. A
relay that is told of it holds every event to its contract before it is delivered.`,
		Example: "  pillarbox contract check",
		Args:    noCommand,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newContractCheck(a))
	return cmd
}

func newContractCheck(a *app) *cobra.Command {
	var against, draft string
	cmd := &cobra.Command{
		Use:   "check [DIR]",
		Short: "Test a folder of schemas, its samples, and whether readers can live with a change",
		Long: `check reads every schema of the folder (default: contracts.dir of the configuration, else contracts), holds the samples in
samples/SCHEMA_REF/*.json to theirs (those that end in .invalid.json must break it), and with --against tells which changes
since that version of the folder break readers or events: removed or newly required properties, narrowed types and bounds.
All problems come at once, with file and JSON Pointer; exit status 1 if there is one.`,
		Example: `  pillarbox contract check
  git worktree add ../before main && pillarbox contract check --against ../before/contracts`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			dir := a.contracts()
			if len(args) > 0 {
				dir = args[0]
			}
			folder, err := openFolder(dir)
			if err != nil {
				return err
			}
			var before fs.FS
			if against != "" {
				if before, err = openFolder(against); err != nil {
					return err
				}
			}
			if d := contract.Draft(draft); d != contract.Draft202012 && d != contract.Draft07 {
				return usageError{fmt.Errorf("--draft is %q: it must be %s or %s", draft, contract.Draft202012, contract.Draft07)}
			}
			report := contract.CheckFolder(folder, before, contract.Draft(draft))
			if err := report.Write(a.out); err != nil {
				return err
			}
			if !report.OK() {
				return errFound
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&against, "against", "", "the `FOLDER` as it was before")
	cmd.Flags().StringVar(&draft, "draft", string(contract.Draft202012), "the `DRAFT` of schemas without $schema: 2020-12 or draft-07")
	return cmd
}

// contracts is the folder that the configuration names, if there is one that can be read.
func (a *app) contracts() string {
	if c, err := a.load(); err == nil {
		return cmp.Or(c.Contracts.Dir, "contracts")
	}
	return "contracts"
}

func openFolder(dir string) (fs.FS, error) {
	if _, err := os.ReadDir(dir); err != nil {
		return nil, fmt.Errorf("read the schemas: %w: name their folder", err)
	}
	return os.DirFS(dir), nil
}
