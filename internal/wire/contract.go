package wire

import (
	"fmt"
	"os"

	"github.com/pillarbox-dev/pillarbox/contract"
	"github.com/pillarbox-dev/pillarbox/internal/config"
)

// loadContracts reads the folder of schemas; nil when none is configured.
func loadContracts(c config.Contracts) (*contract.Contracts, error) {
	if c.Dir == "" {
		return nil, nil
	}
	if _, err := os.ReadDir(c.Dir); err != nil {
		return nil, fmt.Errorf("contracts: %w: name the folder of the schemas with contracts: {dir: …}", err)
	}
	return contract.Load(contract.Config{
		FS: os.DirFS(c.Dir), Draft: contract.Draft(c.Draft), Unknown: contract.Action(c.Unknown), Missing: contract.Action(c.Missing),
	})
}
