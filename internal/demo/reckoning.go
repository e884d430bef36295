package demo

import (
	"context"
	"fmt"
	"time"

	"github.com/pillarbox-dev/pillarbox/internal/reckon"
)

// readLedger gets the relay's view of every event that is or was its to deliver.
const readLedger = `select event_id, status, coalesce(last_error_code, '') from outbox_status where destination = ?1`

func (d *demo) ledger(ctx context.Context) (map[string]reckon.Held, error) {
	rows, err := d.service.db.QueryContext(ctx, readLedger, destination)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	all := map[string]reckon.Held{}
	for rows.Next() {
		var id string
		var held reckon.Held
		if err := rows.Scan(&id, &held.Status, &held.Code); err != nil {
			return nil, err
		}
		all[id] = held
	}
	return all, rows.Err()
}

// reckon holds the three records against each other.
func (d *demo) reckon(ctx context.Context) (reckon.Reckoning, error) {
	committed, rolledBack := d.service.record()
	ledger, err := d.ledger(ctx)
	if err != nil {
		return reckon.Reckoning{}, fmt.Errorf("read the ledger: %w", err)
	}
	inbox, err := d.receiver.inbox(ctx)
	if err != nil {
		return reckon.Reckoning{}, fmt.Errorf("read the inbox: %w", err)
	}
	r := reckon.Of(committed, inbox, ledger)
	r.RolledBack = len(rolledBack)
	r.RelayKills = d.relay.Killed()
	r.Seconds = float64(time.Since(d.started).Milliseconds()) / 1000
	return r, nil
}
