package main

import (
	"database/sql"
	"net/http"

	"github.com/pillarbox-dev/pillarbox/contract"
	"github.com/pillarbox-dev/pillarbox/dashboard"
	"github.com/pillarbox-dev/pillarbox/dashboard/access"
	"github.com/pillarbox-dev/pillarbox/ops"
	"github.com/pillarbox-dev/pillarbox/outbox"
	"github.com/pillarbox-dev/pillarbox/relay"
)

// newBoard returns the dashboard of the relay inside the service, and the same behind its guard. Without credentials the guard
// lets in who sits at this machine, and nobody else; access.Config takes tokens and users.
func newBoard(
	db *sql.DB, c relay.Config, r *relay.Relay, contracts *contract.Contracts,
) (*dashboard.Dashboard, http.Handler, error) {
	look, err := ops.New(db, outbox.Postgres, outboxSchema)
	if err != nil {
		return nil, nil, err
	}
	gate, err := access.New(access.Config{Log: c.Logger})
	if err != nil {
		return nil, nil, err
	}
	board := dashboard.New(dashboard.Config{
		Ops: look.WithContract(contracts.Judge), Title: "Case platform", Destinations: []string{destinationName}, Owner: c.Owner,
		Units: r.Status, Logger: c.Logger,
	})
	return board, gate.Wrap(board), nil
}
