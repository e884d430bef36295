package approval

import (
	"encoding/json"
	"fmt"

	"github.com/pillarbox-dev/pillarbox/outbox"
)

// What the events go by.
const (
	// Topic is that of all events, and SchemaRef their contract.
	Topic     = "approval.audit"
	SchemaRef = "audit-core.event.v1alpha1"
	// Key is the partition key of all events: the trail is one lane, oldest first, so that what the audit store chains is in the
	// order of the log. One that is refused for good is quarantined, and the trail goes on.
	Key = "approvals"
	// CorrelationHeader is the header of the event that names what it is part of.
	CorrelationHeader = "correlationId"
)

// Event is the payload. Its contract is contracts/audit-core.event.v1alpha1.json: no field for a secret, and none for a verdict.
type Event struct {
	SchemaVersion string  `json:"schema_version"`
	EventID       string  `json:"event_id"`
	ObservedAt    string  `json:"observed_at"`
	Tenant        string  `json:"tenant"`
	Scope         string  `json:"scope"`
	Source        string  `json:"source"`
	Actor         *string `json:"actor"` // null: a heartbeat
	Action        string  `json:"action"`
	Resource      string  `json:"resource"`
	Outcome       string  `json:"outcome"`
	Reason        string  `json:"reason"`
	Details       Details `json:"details"`
}

// Details are what is particular to approvals. All but Class are null in a heartbeat.
type Details struct {
	Class         string  `json:"class"`
	ApprovalID    *string `json:"approval_id"`
	BindingDigest *string `json:"binding_digest"`
	SupersededBy  *string `json:"superseded_by"`
	Counts        *Counts `json:"counts,omitempty"` // of a heartbeat
}

// Counts are what happened between two heartbeats.
type Counts struct {
	From    string           `json:"from"`
	To      string           `json:"to"`
	Events  int64            `json:"events"`
	ByClass map[string]int64 `json:"by_class"`
}

// Classes of events.
const (
	Issuance     = "issuance"
	Consumption  = "use"
	Supersession = "supersession"
	Revocation   = "revocation"
	Heartbeat    = "heartbeat"
)

const source = "approvals"

// HeartbeatPayload is the payload of a heartbeat: a sign of life with counts, of nobody and about no approval. id is the
// event's, at is RFC 3339.
func HeartbeatPayload(id, at string, c Counts) ([]byte, error) {
	reason := "nothing to report"
	if c.Events > 0 {
		reason = fmt.Sprintf("%d events", c.Events)
	}
	return json.Marshal(Event{
		SchemaVersion: SchemaRef, EventID: id, ObservedAt: at, Tenant: "platform", Scope: "approvals", Source: source,
		Action: "approval." + Heartbeat, Resource: "approvals", Outcome: "success", Reason: reason,
		Details: Details{Class: Heartbeat, Counts: &c},
	})
}

// eventOf tells what an act has made of an approval.
func eventOf(a Approval, class, id string, act Act) (outbox.Event, error) {
	details := Details{Class: class, ApprovalID: &a.ID, BindingDigest: &a.BindingDigest}
	if a.SupersededBy != "" {
		details.SupersededBy = &a.SupersededBy
	}
	payload, err := json.Marshal(Event{
		SchemaVersion: SchemaRef, EventID: id, ObservedAt: a.ObservedAt, Tenant: a.Tenant, Scope: a.Scope, Source: source,
		Actor: &act.Actor, Action: "approval." + class, Resource: "approval:" + a.ID, Outcome: "success", Reason: act.Reason,
		Details: details,
	})
	if err != nil {
		return outbox.Event{}, fmt.Errorf("write the event: %w", err)
	}
	correlation := act.CorrelationID
	if correlation == "" {
		correlation = id
	}
	return outbox.Event{
		ID: id, Topic: Topic, Key: Key, Type: "approval." + class, SchemaRef: SchemaRef, Payload: payload,
		AggregateType: "approval", AggregateID: a.ID, AggregateVersion: a.Version,
		Headers: map[string]string{CorrelationHeader: correlation},
	}, nil
}
