package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pillarbox-dev/pillarbox/consumer/kafka"
	"github.com/pillarbox-dev/pillarbox/outbox"
	"github.com/pillarbox-dev/pillarbox/outbox/inbox"
)

// workflow is the other system: a workflow engine that learns of cases from Kafka. Its inbox, its projection and its workflow
// instances are in one schema of its own database.
type workflow struct {
	inbox *inbox.Inbox
	log   *slog.Logger
}

// workflowSchema holds the workflow engine's tables, and consumerName is what its inbox calls it.
const (
	workflowSchema = "workflow"
	consumerName   = "workflow-engine"
)

//go:embed postgres/workflow.sql
var workflowTables string

const (
	writeHistory = `insert into workflow.case_history (case_id, version, event_type, event_id) values ($1, $2, $3, $4)`
	projectCase  = `insert into workflow.case_view (case_id, tenant_id, status, version) values ($1, $2, $3, $4)
	                    on conflict (case_id) do update
	                   set status = excluded.status, version = excluded.version, updated_at = clock_timestamp()`
	startInstance = `insert into workflow.instance (business_key, state) values ($1, 'WAITING') on conflict do nothing`
	// An instance that was never started is made up for: it may be older than the topic reaches back.
	correlate = `insert into workflow.instance as i (business_key, state, correlations, correlation_id)
	             values ($1, 'GOING ON', 1, $2)
	                 on conflict (business_key) do update
	                set state = 'GOING ON', correlations = i.correlations + 1, correlation_id = excluded.correlation_id`
)

// newWorkflow returns the consumer. It makes the tables that are missing.
func newWorkflow(ctx context.Context, pool *pgxpool.Pool, brokers []string, log *slog.Logger) (*kafka.Consumer[pgx.Tx], error) {
	if err := makeTables(ctx, pool, workflowSchema, workflowTables); err != nil {
		return nil, err
	}
	box, err := inbox.New(outbox.Postgres, inbox.Options{Schema: workflowSchema})
	if err != nil {
		return nil, err
	}
	w := &workflow{inbox: box, log: log}
	return kafka.New(kafka.Config[pgx.Tx]{
		Brokers: brokers, Topics: []string{lifecycleTopic}, Group: consumerName,
		Inbox: box, Begin: outbox.BeginPgx(pool), Handle: w.handle, SameBody: samePayload, Batch: 50, Log: log,
	})
}

// message is the envelope of DESIGN.md, as far as it is needed here.
type message struct {
	EventID          string          `json:"eventId"`
	EventType        string          `json:"eventType"`
	EventVersion     int             `json:"eventVersion"`
	AggregateID      string          `json:"aggregateId"`
	AggregateVersion int64           `json:"aggregateVersion"`
	Payload          json.RawMessage `json:"payload"`
}

// samePayload is what two deliveries of an event have in common: the envelope says when each was published.
func samePayload(m kafka.Message) []byte {
	var e message
	if json.Unmarshal(m.Value, &e) != nil {
		return m.Value
	}
	return bytes.TrimSpace(e.Payload)
}

// handle is called once for each event that is new, in the transaction that the inbox's record is in.
func (w *workflow) handle(ctx context.Context, tx pgx.Tx, m kafka.Message) error {
	var e message
	var c struct{ CaseID, TenantID, Status string }
	if err := json.Unmarshal(m.Value, &e); err != nil {
		return kafka.Reject("BAD_ENVELOPE", err)
	}
	if e.EventType != typeSubmitted && e.EventType != typeAccepted {
		return nil // a kind that came later, for others
	}
	if err := json.Unmarshal(e.Payload, &c); err != nil {
		return kafka.Reject("BAD_PAYLOAD", err)
	}
	if c.CaseID != e.AggregateID {
		return kafka.Reject("BAD_PAYLOAD", fmt.Errorf("it is of case %q, and the envelope of %q", c.CaseID, e.AggregateID))
	}
	verdict, err := w.inbox.Guard(ctx, outbox.Pgx(tx), consumerName, "case", c.CaseID, e.AggregateVersion)
	if verdict == inbox.Gap {
		// Each event has all that is needed here, so nothing waits for one that is missing. When it comes it is stale.
		w.log.Warn("a version was skipped", "case", c.CaseID, "version", e.AggregateVersion)
		verdict, err = w.inbox.Jump(ctx, outbox.Pgx(tx), consumerName, "case", c.CaseID, e.AggregateVersion)
	}
	if err != nil || verdict == inbox.Stale {
		return err
	}
	batch := &pgx.Batch{}
	batch.Queue(writeHistory, c.CaseID, e.AggregateVersion, e.EventType, m.EventID)
	batch.Queue(projectCase, c.CaseID, c.TenantID, c.Status, e.AggregateVersion)
	if e.EventType == typeSubmitted {
		batch.Queue(startInstance, c.CaseID)
	} else {
		correlationID, _ := m.Header("correlationId")
		batch.Queue(correlate, c.CaseID, correlationID)
	}
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("apply %s of case %s: %w", e.EventType, c.CaseID, err)
	}
	return nil
}
