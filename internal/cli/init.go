package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/pillarbox-dev/pillarbox/internal/config"
)

func newInit(a *app) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Write a pillarbox.yaml that explains every key",
		Long: `init writes a configuration in which every key is explained. It asks nothing, and does not overwrite a file
unless told to.`,
		Example: `  pillarbox init
  pillarbox init -c /etc/pillarbox/pillarbox.yaml`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			flags := os.O_WRONLY | os.O_CREATE | os.O_EXCL
			if force {
				flags = os.O_WRONLY | os.O_CREATE | os.O_TRUNC
			}
			if err := write(a.file, flags); err != nil {
				return err
			}
			a.printf("%s is written: set the database and a destination in it, then run 'pillarbox check'\n", a.file)
			return nil
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "overwrite the file if it is there")
	return cmd
}

func write(name string, flags int) error {
	file, err := os.OpenFile(name, flags, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s is there already: keep it, name another with -c, or overwrite it with --force", name)
	}
	if err != nil {
		return fmt.Errorf("write the configuration: %w: name a file in a folder that you may write to with -c", err)
	}
	_, err = file.WriteString(config.Example())
	return errors.Join(err, file.Close())
}
