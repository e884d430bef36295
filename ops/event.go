package ops

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// Delivery is one event on its way to one destination, as the log and the ledger show it. Payload and headers are in
// EventDetail.
type Delivery struct {
	Seq              int64     `json:"seq"`
	EventID          string    `json:"event_id"`
	Topic            string    `json:"topic_name"`
	Key              string    `json:"partition_key"`
	AggregateType    string    `json:"aggregate_type"`
	AggregateID      string    `json:"aggregate_id"`
	AggregateVersion int64     `json:"aggregate_version"`
	EventType        string    `json:"event_type"`
	EventVersion     int       `json:"event_version"`
	SchemaRef        string    `json:"schema_ref"`
	CreatedAt        time.Time `json:"created_at"`
	// AvailableAt is when the event may be delivered at the earliest; nil: at once.
	AvailableAt *time.Time `json:"available_at,omitempty"`

	Destination   string       `json:"destination"`
	Status        relay.Status `json:"status"`
	Attempts      int          `json:"attempt_count"`
	NextAttemptAt *time.Time   `json:"next_attempt_at,omitempty"`
	LastAttemptAt *time.Time   `json:"last_attempt_at,omitempty"`
	PublishedAt   *time.Time   `json:"published_at,omitempty"`
	LockedBy      string       `json:"locked_by,omitempty"`
	LockedAt      *time.Time   `json:"locked_at,omitempty"`
	// Endpoint is set while the delivery is not published.
	Endpoint     string `json:"endpoint,omitempty"`
	Receipt      string `json:"receipt,omitempty"`
	ErrorCode    string `json:"last_error_code,omitempty"`
	ErrorMessage string `json:"last_error_message,omitempty"`

	// Version is what an operator has seen: an action that names it is refused once the delivery, or the event, has changed. It
	// is opaque. "" for a delivery that has no row in the ledger, which no action can be done to.
	Version string `json:"version,omitempty"`
}

// EventDetail is all that is known of one event.
type EventDetail struct {
	Seq              int64      `json:"seq"`
	EventID          string     `json:"event_id"`
	Topic            string     `json:"topic_name"`
	Key              string     `json:"partition_key"`
	AggregateType    string     `json:"aggregate_type"`
	AggregateID      string     `json:"aggregate_id"`
	AggregateVersion int64      `json:"aggregate_version"`
	EventType        string     `json:"event_type"`
	EventVersion     int        `json:"event_version"`
	SchemaRef        string     `json:"schema_ref"`
	DedupKey         string     `json:"dedup_key,omitempty"`
	CreatedAt        time.Time  `json:"created_at"`
	AvailableAt      *time.Time `json:"available_at,omitempty"`
	// Payload is JSON as the producer wrote it; nil for a tombstone, and when PayloadBytes is set.
	Payload      json.RawMessage `json:"payload,omitempty"`
	PayloadBytes []byte          `json:"payload_bytes,omitempty"`
	// Headers is a flat object of strings, as the producer wrote it.
	Headers json.RawMessage `json:"headers"`
	// Archived says that retention has moved the event to the archive: it can be looked at, and no longer acted upon.
	Archived bool `json:"archived"`
	// Deliveries has one entry for each destination that wants the event or has a row for it.
	Deliveries []Delivery `json:"deliveries"`
	// History is what operators did to it, newest first, at most 100 entries.
	History []LogEntry `json:"history"`
}

// LogEntry is a line of outbox_operator_action.
type LogEntry struct {
	ID          int64           `json:"id"`
	At          time.Time       `json:"at"`
	Operator    string          `json:"operator"`
	Action      string          `json:"action"`
	Destination string          `json:"destination,omitempty"`
	Seq         int64           `json:"seq,omitempty"`
	EventID     string          `json:"event_id,omitempty"`
	Reason      string          `json:"reason,omitempty"`
	Before      json.RawMessage `json:"before,omitempty"`
	After       json.RawMessage `json:"after,omitempty"`
}

// Filter says which deliveries. What is left zero does not restrict. All that is set has to fit.
type Filter struct {
	// Destination is required for jobs; "" in a list: all destinations.
	Destination string         `json:"destination,omitempty"`
	Statuses    []relay.Status `json:"statuses,omitempty"`
	// Topics are patterns, * for any run of characters.
	Topics        relay.Topics `json:"topics,omitempty"`
	Key           string       `json:"partition_key,omitempty"`
	AggregateType string       `json:"aggregate_type,omitempty"`
	AggregateID   string       `json:"aggregate_id,omitempty"`
	EventType     string       `json:"event_type,omitempty"`
	ErrorCode     string       `json:"last_error_code,omitempty"`
	Endpoint      string       `json:"endpoint,omitempty"`
	// Since and Until bound created_at: from Since on, before Until.
	Since time.Time `json:"since,omitzero"`
	Until time.Time `json:"until,omitzero"`
	// FromSeq and ToSeq bound the number, both included; 0: no bound.
	FromSeq int64 `json:"from_seq,omitempty"`
	ToSeq   int64 `json:"to_seq,omitempty"`
}

// Page says which part of a list.
type Page struct {
	// Limit is how many entries at most. Default 50, at most MaxPage.
	Limit int
	// After is the Next of the page before; "": the beginning. It is opaque.
	After string
	// OldestFirst turns the order around; lists begin with the newest.
	OldestFirst bool
}

// MaxPage is how many entries a page has at most.
const MaxPage = 500

// DeliveryPage is a part of a list of deliveries.
type DeliveryPage struct {
	Deliveries []Delivery `json:"deliveries"`
	// Next is what Page.After has to be for what follows; "": this is the end. A page may have fewer entries than asked for, or
	// none, and still a Next: looking stopped at a limit, so that no list costs the database much. Go on from there.
	Next string `json:"next,omitempty"`
}

// LogPage is a part of the operators' log.
type LogPage struct {
	Entries []LogEntry `json:"entries"`
	Next    string     `json:"next,omitempty"`
}

// LogFilter says which entries. What is left zero does not restrict.
type LogFilter struct {
	Operator    string
	Action      string
	Destination string
	Seq         int64
}

// EventRef names an event by its number, or by its id when Seq is 0.
type EventRef struct {
	Seq     int64
	EventID string
}

// Target names what an operator acts on.
type Target struct {
	Destination string
	Seq         int64
	// Version is the Delivery.Version that the operator saw. It is required.
	Version string
}

// Repair is what an event becomes. A field that is nil stays as it is.
type Repair struct {
	// Payload is JSON; PayloadBytes anything else. At most one of the two.
	Payload      json.RawMessage
	PayloadBytes []byte
	// Headers replace all headers of the event.
	Headers map[string]string
}

var (
	// ErrNotFound says that there is no such event, delivery or job.
	ErrNotFound = errors.New("not found")
	// ErrBadPage says that Page.After is not what a list has returned.
	ErrBadPage = errors.New("the page's beginning is not one that a list has returned: start from the first page")
)

// ConflictError says that what an operator acts on has changed since it was looked at.
type ConflictError struct {
	// Now is what it has become.
	Now Delivery
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("it has changed since you looked: it is %s now, after %d attempts: look at it again", e.Now.Status, e.Now.Attempts)
}

// RefusedError says that an action makes no sense for what it was asked for.
type RefusedError struct{ Why string }

func (e *RefusedError) Error() string { return e.Why }
