package outbox

import (
	"encoding/json"
	"time"
)

// Event is a fact to publish. Topic and Type are required; everything else has a useful zero value. Texts are UTF-8 and at
// most 255 bytes long each; Topic, Type, AggregateType and SchemaRef hold no control characters, the others no NUL.
type Event struct {
	// ID is what receivers dedupe by; visible ASCII. Default: a new UUIDv7, greater than all that the Outbox made before.
	ID string

	// Topic says what the event is about, and destinations choose by it; in Kafka it is the topic.
	Topic string
	// Key is the partition key: events with the same Key are delivered in order. "" asks for no order.
	Key string

	// AggregateType, AggregateID and AggregateVersion say which entity changed, and to which version. A receiver can tell by
	// the version what is stale and what is missing.
	AggregateType    string
	AggregateID      string
	AggregateVersion int64

	// Type names the fact, like CaseAccepted, and Version the version of its contract. Version 0 is taken as 1.
	Type    string
	Version int
	// SchemaRef is the contract's identity, like reg.case.lifecycle.CaseAccepted.v1.
	SchemaRef string

	// Payload is JSON text. It is stored and published byte for byte, odd spacing and big numbers included, and nested at most
	// 512 deep. PayloadBytes is for anything that is not JSON: Avro, Protobuf. At most one of them is set; with neither (both
	// nil) the event is a tombstone.
	Payload      json.RawMessage
	PayloadBytes []byte
	// Headers go along with the event to every destination. Names are HTTP tokens (RFC 9110, 5.6.2) that differ in more than
	// case; values hold no control character but the tab.
	Headers map[string]string

	// DedupKey is unique in the log when it is not empty. See Result.Duplicate.
	DedupKey string
	// AvailableAt is the time before which the event is not delivered, by the database's clock; microseconds are kept.
	// Zero: at once. It holds later events of the same Key back.
	AvailableAt time.Time
}

// Result says what became of an event.
type Result struct {
	// ID is the event's, made by Enqueue when the event brought none.
	ID string
	// Duplicate says that the log, or the same call, already had an event with this ID or DedupKey. Nothing was written for
	// this one, the one that is there stays as it is, and the transaction is as good as before.
	Duplicate bool
}
