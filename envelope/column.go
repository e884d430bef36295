package envelope

import (
	"strconv"
	"time"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// column is one of the columns of outbox_event that options may name. It has a text, a number or a time.
type column struct {
	name   string
	text   func(*relay.Event) string
	number func(*relay.Event) int64
	time   func(*relay.Event) time.Time
}

var columns = []column{
	{name: "event_id", text: func(e *relay.Event) string { return e.ID }},
	{name: "topic_name", text: func(e *relay.Event) string { return e.Topic }},
	{name: "partition_key", text: func(e *relay.Event) string { return e.Key }},
	{name: "aggregate_type", text: func(e *relay.Event) string { return e.AggregateType }},
	{name: "aggregate_id", text: func(e *relay.Event) string { return e.AggregateID }},
	{name: "aggregate_version", number: func(e *relay.Event) int64 { return e.AggregateVersion }},
	{name: "event_type", text: func(e *relay.Event) string { return e.Type }},
	{name: "event_version", number: func(e *relay.Event) int64 { return int64(e.Version) }},
	{name: "schema_ref", text: func(e *relay.Event) string { return e.SchemaRef }},
	{name: "seq", number: func(e *relay.Event) int64 { return e.Seq }},
	{name: "created_at", time: func(e *relay.Event) time.Time { return e.CreatedAt }},
}

// string returns what the column holds as text.
func (c *column) string(e *relay.Event) string {
	switch {
	case c.number != nil:
		return strconv.FormatInt(c.number(e), 10)
	case c.time != nil:
		return c.time(e).UTC().Format(time.RFC3339Nano)
	}
	return c.text(e)
}

func findColumn(name string) (column, bool) {
	for _, c := range columns {
		if c.name == name {
			return c, true
		}
	}
	return column{}, false
}

// columnNames lists those that hold text, or all.
func columnNames(textOnly bool) (names []string) {
	for _, c := range columns {
		if c.text != nil || !textOnly {
			names = append(names, c.name)
		}
	}
	return names
}
