package envelope

import (
	"encoding/base64"
	"errors"
	"time"

	"github.com/pillarbox-dev/pillarbox/envelope/internal/jsontext"
	"github.com/pillarbox-dev/pillarbox/relay"
)

// wrapped is the envelope of the name envelope: one JSON object, always with the same members in the same order:
//
//	eventId, eventType, eventVersion, schemaRef, aggregateType, aggregateId, aggregateVersion, producer, occurredAt,
//	publishedAt, payload
//
// occurredAt is when the event was written in its transaction, by the database's clock; publishedAt is when it was wrapped for
// this attempt, by the relay's. Both are RFC 3339 in UTC with microseconds. payload is the producer's JSON byte for byte; null
// without one. A payload that is not JSON is payloadBase64 instead.
type wrapped struct {
	producer        string
	dropsTombstones bool
	now             func() time.Time
}

func newWrapped(c *Config) (Envelope, []error) {
	if c.Producer == "" {
		return nil, []error{errors.New("producer is missing: name the service that the events come from")}
	}
	return &wrapped{c.Producer, c.dropsTombstones(), c.Now}, nil
}

// embeddedSize is what the payload takes within a JSON object.
func embeddedSize(e *relay.Event) int {
	if e.Binary {
		return base64.StdEncoding.EncodedLen(len(e.Payload))
	}
	return len(e.Payload)
}

// wrappedSize is about what the members take beside the payload.
const wrappedSize = 512

func (w *wrapped) Wrap(e *relay.Event) (Message, error) {
	m := Message{Key: laneKey(e), Time: e.CreatedAt}
	if e.Payload == nil && w.dropsTombstones {
		return m, nil
	}
	if err := checkTexts(e); err != nil {
		return Message{}, err
	}
	o := jsontext.NewObject(wrappedSize + embeddedSize(e))
	w.members(o, e)
	switch {
	case e.Payload == nil:
		o.Raw("payload", []byte("null"))
	case e.Binary:
		o.Base64("payloadBase64", e.Payload)
	default:
		if err := checkJSON(e.Payload); err != nil {
			return Message{}, err
		}
		o.Raw("payload", e.Payload)
	}
	m.Value, m.ContentType = o.Close(), typeJSON
	return m, nil
}

// members writes all but the payload.
func (w *wrapped) members(o *jsontext.Object, e *relay.Event) {
	o.String("eventId", e.ID)
	o.String("eventType", e.Type)
	o.Int("eventVersion", int64(e.Version))
	o.String("schemaRef", e.SchemaRef)
	o.String("aggregateType", e.AggregateType)
	o.String("aggregateId", e.AggregateID)
	o.Int("aggregateVersion", e.AggregateVersion)
	o.String("producer", w.producer)
	o.Time("occurredAt", e.CreatedAt)
	o.Time("publishedAt", w.now())
}
