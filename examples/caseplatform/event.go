package main

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/pillarbox-dev/pillarbox/outbox"
)

// The names that others know the events by.
const (
	lifecycleTopic = "reg.case.lifecycle.v1"
	producer       = "case-platform"

	typeSubmitted = "CaseSubmitted"
	typeAccepted  = "CaseAccepted"
)

// caseAccepted is the payload of CaseAccepted, version 1, and the answer to who accepted the case. Its contract is in contracts/.
type caseAccepted struct {
	CaseID     string    `json:"caseId"`
	TenantID   string    `json:"tenantId"`
	Status     string    `json:"status"`
	Version    int64     `json:"version"`
	AcceptedAt time.Time `json:"acceptedAt"`
	AcceptedBy string    `json:"acceptedBy"`
}

func (c caseAccepted) event() outbox.Event {
	return lifecycle(typeAccepted, c.CaseID, c.Version, c)
}

// caseSubmitted is the payload of CaseSubmitted, version 1, and the answer to who submitted the case.
type caseSubmitted struct {
	CaseID      string    `json:"caseId"`
	TenantID    string    `json:"tenantId"`
	Subject     string    `json:"subject"`
	Status      string    `json:"status"`
	Version     int64     `json:"version"`
	SubmittedAt time.Time `json:"submittedAt"`
}

func (c caseSubmitted) event() outbox.Event {
	return lifecycle(typeSubmitted, c.CaseID, c.Version, c)
}

// lifecycle is an event in the life of a case. The key keeps the events of a case in order. The dedup key says what makes two
// events the same in the eyes of the business: the log takes it once.
func lifecycle(eventType, caseID string, version int64, payload any) outbox.Event {
	text, err := json.Marshal(payload)
	if err != nil {
		panic(err) // a struct of texts, numbers and times can be marshalled
	}
	return outbox.Event{
		Topic: lifecycleTopic, Key: caseID,
		AggregateType: "case", AggregateID: caseID, AggregateVersion: version,
		Type: eventType, Version: 1, SchemaRef: "reg.case.lifecycle." + eventType + ".v1",
		Payload:  text,
		DedupKey: businessID(eventType, caseID, version),
	}
}

// businessID names an event by what it says.
func businessID(eventType, caseID string, version int64) string {
	return fmt.Sprintf("%s/%s/%d", eventType, caseID, version)
}
