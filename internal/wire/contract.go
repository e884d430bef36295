package wire

import (
	"fmt"
	"os"

	"github.com/pillarbox-dev/pillarbox/contract"
	"github.com/pillarbox-dev/pillarbox/internal/config"
	"github.com/pillarbox-dev/pillarbox/ops"
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

// WithContracts lets an operator's repairs be held to the contracts of the configuration, if it has some.
func WithContracts(o *ops.Ops, c config.Contracts) (*ops.Ops, error) {
	contracts, err := loadContracts(c)
	if err != nil || contracts == nil {
		return o, err
	}
	return o.WithContract(contracts.Judge), nil
}
