package sqlite

import (
	"database/sql"
	"time"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// The tables are strict, so each column has the type that is said here. An empty payload_bytes comes back from the driver as
// nil, like none at all, so a column of its own says which of the payloads is there.
const (
	eventColumns = `e.seq, e.event_id, e.topic_name, e.partition_key, e.aggregate_type, e.aggregate_id, e.aggregate_version,
       e.event_type, e.event_version, e.schema_ref, cast(e.headers as blob), e.available_at, e.created_at,
       (e.payload is not null) + 2 * (e.payload_bytes is not null), coalesce(e.payload_bytes, cast(e.payload as blob))`
	eventColumnCount = 15

	payloadJSON, payloadBinary = 1, 2
)

// eventRow scans rows that consist of a number and eventColumns. Scanning into any spares reflection: it is twice as fast.
type eventRow struct {
	number  int64
	columns [eventColumnCount]any
	dest    [1 + eventColumnCount]any
}

func newEventRow() *eventRow {
	r := &eventRow{}
	r.dest[0] = &r.number
	for i := range r.columns {
		r.dest[i+1] = &r.columns[i]
	}
	return r
}

func (r *eventRow) scan(rows *sql.Rows) (number int64, err error) {
	err = rows.Scan(r.dest[:]...)
	return r.number, err
}

// event returns the event that was scanned; nil when all its columns are null.
func (r *eventRow) event(now time.Time) *relay.Event {
	if r.columns[0] == nil {
		return nil
	}
	e := &relay.Event{
		Seq:              r.integer(0),
		ID:               r.text(1),
		Topic:            r.text(2),
		Key:              r.text(3),
		AggregateType:    r.text(4),
		AggregateID:      r.text(5),
		AggregateVersion: r.integer(6),
		Type:             r.text(7),
		Version:          int(r.integer(8)),
		SchemaRef:        r.text(9),
		Headers:          r.bytes(10),
		CreatedAt:        time.UnixMicro(r.integer(12)).UTC(),
	}
	if at, ok := r.columns[11].(int64); ok {
		e.AvailableIn = time.UnixMicro(at).Sub(now)
	}
	switch r.integer(13) {
	case payloadJSON:
		e.Payload = r.bytes(14)
	case payloadBinary:
		e.Binary, e.Payload = true, r.bytes(14)
		if e.Payload == nil {
			e.Payload = []byte{}
		}
	}
	return e
}

func (r *eventRow) integer(i int) int64 {
	v, _ := r.columns[i].(int64)
	return v
}

func (r *eventRow) text(i int) string {
	v, _ := r.columns[i].(string)
	return v
}

// bytes needs no copy: the driver has made one for this row.
func (r *eventRow) bytes(i int) []byte {
	v, _ := r.columns[i].([]byte)
	return v
}
