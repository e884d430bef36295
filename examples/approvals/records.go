package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"

	"github.com/pillarbox-dev/pillarbox/examples/approvals/approval"
	"github.com/pillarbox-dev/pillarbox/examples/approvals/audit"
	"github.com/pillarbox-dev/pillarbox/internal/reckon"
)

// The records that are held against each other. Heartbeats have no history but the log.
const (
	readHistory    = `select event_id, approval_id from approval_change order by approval_id, version`
	readHeartbeats = `select event_id, 'heartbeat' from outbox_event where event_type = 'approval.heartbeat' order by seq`
	readLedger     = `select event_id, status, coalesce(last_error_code, '') from outbox_status where destination = 'audit-core'`
	countRevoked   = `select count(*) from approval_change where class = 'revocation'`
)

// reckonAll holds what the service has committed against what the ledger says and what the audit store has chained, in that
// order: what is published by then is there by then. An error of the chain is an error.
func reckonAll(ctx context.Context, db database, store *sql.DB) (r reckon.Reckoning, chain []audit.Entry, err error) {
	var committed []reckon.Written
	for _, query := range []string{readHistory, readHeartbeats} {
		err := each(ctx, db.DB, query, func(scan func(...any) error) error {
			var w reckon.Written
			defer func() { committed = append(committed, w) }()
			return scan(&w.ID, &w.Key)
		})
		if err != nil {
			return r, nil, fmt.Errorf("read the history: %w", err)
		}
	}
	ledger := map[string]reckon.Held{}
	err = each(ctx, db.DB, readLedger, func(scan func(...any) error) error {
		var id string
		var held reckon.Held
		err := scan(&id, &held.Status, &held.Code)
		ledger[id] = held
		return err
	})
	if err != nil {
		return r, nil, fmt.Errorf("read the ledger: %w", err)
	}
	if chain, err = audit.Verify(ctx, store); err != nil {
		return r, nil, err
	}
	handled := make([]reckon.Handled, len(chain))
	for i, e := range chain {
		delivered, err := adapted(e)
		if err != nil {
			return r, nil, err
		}
		handled[i] = reckon.Handled{ID: e.EventID, Key: "heartbeat", Times: e.Times}
		if id := delivered.Data.Details.ApprovalID; id != nil {
			handled[i].Key = *id
		}
	}
	return reckon.Of(committed, handled, ledger), chain, nil
}

// delivered is what the audit store is sent.
type delivered struct {
	ID            string         `json:"id"`
	Type          string         `json:"type"`
	Source        string         `json:"source"`
	Subject       string         `json:"subject"`
	Tenant        string         `json:"tenant"`
	CorrelationID string         `json:"correlation_id"`
	OccurredAt    string         `json:"occurred_at"`
	Data          approval.Event `json:"data"`
}

func adapted(e audit.Entry) (d delivered, err error) {
	if err := json.Unmarshal(e.Body, &d); err != nil {
		return d, fmt.Errorf("entry %d of the chain: %w", e.Number, err)
	}
	return d, nil
}

// each calls f for each row.
func each(ctx context.Context, db *sql.DB, query string, f func(scan func(...any) error) error) error {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := f(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}
