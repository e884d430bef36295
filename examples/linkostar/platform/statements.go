package platform

import (
	"embed"

	"github.com/pillarbox-dev/pillarbox/outbox"
)

//go:embed postgres/*.sql sqlite/*.sql
var files embed.FS

// statements are the SQL of one dialect: a file each, of the same name in both.
type statements struct {
	schema, hub, device, countActivation, activation string
	settleHub, settleDevice, settleActivation        string
	committed, held, counts, diverged                string
}

func statementsOf(d outbox.Dialect) statements {
	folder := "postgres/"
	if d == outbox.SQLite {
		folder = "sqlite/"
	}
	read := func(name string) string {
		text, err := files.ReadFile(folder + name + ".sql")
		if err != nil {
			panic(err) // it is embedded
		}
		return string(text)
	}
	return statements{
		schema: read("schema"), hub: read("hub"), device: read("device"),
		countActivation: read("count_activation"), activation: read("activation"),
		settleHub: read("settle_hub"), settleDevice: read("settle_device"), settleActivation: read("settle_activation"),
		committed: read("committed"), held: read("held"), counts: read("counts"), diverged: read("diverged"),
	}
}
