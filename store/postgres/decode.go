package postgres

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// eventSQL are the columns of an event e besides seq, in the order of the constants below. It replaces {event}.
const eventSQL = `e.event_id, e.topic_name, e.partition_key, e.aggregate_type, e.aggregate_id, e.aggregate_version,
       e.event_type, e.event_version, e.schema_ref, e.payload, e.payload_bytes, e.headers, e.available_at, e.created_at`

const (
	columnSeq = iota
	columnEventID
	columnTopic
	columnKey
	columnAggregateType
	columnAggregateID
	columnAggregateVersion
	columnType
	columnVersion
	columnSchemaRef
	columnPayload
	columnPayloadBytes
	columnHeaders
	columnAvailableAt
	columnCreatedAt
	eventColumns
)

// eventReader makes events out of raw rows. It allocates for many at once: the values of an event are only valid until the
// next row, and an allocation for each would cost more than all the rest. The chunks are small, so that one event that is
// in flight for hours keeps no more than them alive.
type eventReader struct {
	events []relay.Event
	texts  strings.Builder
	bytes  []byte
	known  map[string]string
}

const (
	eventsPerChunk = 128
	textChunk      = 16 << 10
	bytesChunk     = 64 << 10
	// maxKnown bounds the texts that are looked up because they repeat: topics, types, schemas.
	maxKnown = 1000
)

// read decodes the columns of an event. now is the database's clock, for AvailableIn.
func (r *eventReader) read(values [][]byte, now int64) (*relay.Event, error) {
	if len(r.events) == 0 {
		r.events = make([]relay.Event, eventsPerChunk)
	}
	e := &r.events[0]
	r.events = r.events[1:]

	var err error
	if e.Seq, err = bigint(values[columnSeq]); err != nil {
		return nil, err
	}
	if e.AggregateVersion, err = bigint(values[columnAggregateVersion]); err != nil {
		return nil, err
	}
	if e.Version, err = integer(values[columnVersion]); err != nil {
		return nil, err
	}
	created, err := bigint(values[columnCreatedAt])
	if err != nil {
		return nil, err
	}
	e.CreatedAt = timestamp(created)
	if at := values[columnAvailableAt]; at != nil {
		available, err := bigint(at)
		if err != nil {
			return nil, err
		}
		e.AvailableIn = between(now, available)
	}

	e.ID = r.text(values[columnEventID])
	e.Key = r.text(values[columnKey])
	e.AggregateID = r.text(values[columnAggregateID])
	e.Topic = r.repeated(values[columnTopic])
	e.AggregateType = r.repeated(values[columnAggregateType])
	e.Type = r.repeated(values[columnType])
	e.SchemaRef = r.repeated(values[columnSchemaRef])
	e.Headers = r.copied(values[columnHeaders])
	e.Payload = r.copied(values[columnPayload])
	if b := values[columnPayloadBytes]; b != nil {
		e.Payload, e.Binary = r.copied(b), true
	}
	return e, nil
}

// text copies a text into a chunk that many share.
func (r *eventReader) text(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	if len(b) > textChunk/4 {
		return string(b)
	}
	if r.texts.Cap()-r.texts.Len() < len(b) {
		r.texts = strings.Builder{} // those of the old one stay as they are
		r.texts.Grow(textChunk)
	}
	start := r.texts.Len()
	r.texts.Write(b)
	return r.texts.String()[start:]
}

// repeated returns a text of which there are few different ones.
func (r *eventReader) repeated(b []byte) string {
	if known, ok := r.known[string(b)]; ok {
		return known
	}
	s := string(b)
	if r.known == nil {
		r.known = map[string]string{}
	}
	if len(r.known) < maxKnown {
		r.known[s] = s
	}
	return s
}

// copied copies bytes into a chunk that many share; nil stays nil, and what is empty is not nil.
func (r *eventReader) copied(b []byte) []byte {
	if b == nil {
		return nil
	}
	if len(b) == 0 {
		return []byte{}
	}
	if len(b) > bytesChunk/4 {
		return append(make([]byte, 0, len(b)), b...)
	}
	if cap(r.bytes)-len(r.bytes) < len(b) {
		r.bytes = make([]byte, 0, bytesChunk)
	}
	start := len(r.bytes)
	r.bytes = append(r.bytes, b...)
	return r.bytes[start:len(r.bytes):len(r.bytes)]
}

func rowBytes(values [][]byte) (n int) {
	for _, v := range values {
		n += len(v)
	}
	return n
}

func bigint(b []byte) (int64, error) {
	if len(b) != 8 {
		return 0, fmt.Errorf("a number of 8 bytes came with %d", len(b))
	}
	return int64(binary.BigEndian.Uint64(b)), nil
}

func integer(b []byte) (int, error) {
	if len(b) != 4 {
		return 0, fmt.Errorf("a number of 4 bytes came with %d", len(b))
	}
	return int(int32(binary.BigEndian.Uint32(b))), nil
}

// epoch is where PostgreSQL's timestamps begin, 2000-01-01, in microseconds of Unix time.
const epoch = 946_684_800_000_000

// timestamp turns microseconds since 2000 into a time. The ends of the range are PostgreSQL's infinity.
func timestamp(us int64) time.Time {
	if us > math.MaxInt64-epoch {
		us = math.MaxInt64 - epoch
	}
	return time.UnixMicro(us + epoch).UTC()
}

// between is the time from one timestamp to another, as far as a Duration reaches; infinity is as far as it reaches.
func between(from, to int64) time.Duration {
	const most = math.MaxInt64 / int64(time.Microsecond)
	us := to - from
	switch {
	case to > from && (us < 0 || us > most):
		return math.MaxInt64
	case to < from && (us > 0 || us < -most):
		return math.MinInt64
	}
	return time.Duration(us) * time.Microsecond
}
