// Command pillarbox is the relay, the tools of an operator, and a demo: see 'pillarbox --help'.
package main

import (
	"os"

	"github.com/pillarbox-dev/pillarbox/internal/cli"
)

func main() { os.Exit(cli.Run(os.Args[1:], os.Stdout, os.Stderr)) }
