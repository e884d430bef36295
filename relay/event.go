package relay

import (
	"encoding/json"
	"fmt"
	"time"
)

// Event is a row of outbox_event as the relay reads it. It is shared by everything that handles the
// event's delivery and is never changed.
type Event struct {
	// Seq is the event's number in the log.
	Seq int64
	// ID is event_id: stable over every attempt, what a receiver dedupes by.
	ID string

	Topic            string
	Key              string // partition_key; "" asks for no order
	AggregateType    string
	AggregateID      string
	AggregateVersion int64
	Type             string
	Version          int
	SchemaRef        string

	// Payload holds the producer's bytes as they are: JSON text, or anything at all when Binary is set.
	// It is nil for a tombstone.
	Payload []byte
	Binary  bool
	// Headers is the JSON text of a flat object of strings. See HeaderMap.
	Headers []byte

	// AvailableIn is how long the event may not be delivered yet, by the database's clock at the read;
	// zero or less: at once.
	AvailableIn time.Duration
	CreatedAt   time.Time
}

// HeaderMap parses Headers. A log that was filled by hand may hold what is not a flat object of
// strings; the error says so.
func (e *Event) HeaderMap() (map[string]string, error) {
	if len(e.Headers) == 0 || string(e.Headers) == "{}" {
		return nil, nil
	}
	var m map[string]string
	if err := json.Unmarshal(e.Headers, &m); err != nil {
		return nil, fmt.Errorf("headers of event %s are not a flat JSON object of strings: %w", e.ID, err)
	}
	return m, nil
}

// Size is about what the event takes in memory, in bytes.
func (e *Event) Size() int {
	return len(e.Payload) + len(e.Headers) + len(e.ID) + len(e.Topic) + len(e.Key) + eventOverhead
}

const eventOverhead = 256

// A Delivery is one event on its way to one destination.
type Delivery struct {
	*Event
	// Endpoint is where it goes; "" when the destination has just one.
	Endpoint string
	// Attempt counts from 1; this try is included.
	Attempt int
	// PossibleDuplicate says that an earlier attempt may have arrived: a former owner of the lease may have made it, or its
	// answer was lost. A retry that comes out of the ledger does not remember a lost answer; it was counted when it was lost.
	PossibleDuplicate bool
}
