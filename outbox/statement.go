package outbox

import (
	"fmt"
	"strconv"

	"github.com/pillarbox-dev/pillarbox/outbox/schema"
)

// The INSERT, of one or more rows. A row that is there already is passed over, and the ids of what was written come back.
//
// insertWaking wakes a relay that sleeps. It adds nothing to the id (what pg_notify returns is empty text), but being part of
// it, it is evaluated, once, when a row was written. NOTIFY takes a cluster-wide lock at commit; over cursors that are asleep,
// it is not sent when there are none.
const (
	insertColumns = `(event_id, topic_name, partition_key, aggregate_type, aggregate_id, aggregate_version, event_type,
 event_version, schema_ref, payload, payload_bytes, headers, dedup_key, available_at) values `
	insertReturning = `
on conflict do nothing returning event_id`
	insertWaking = ` || coalesce((
 select pg_catalog.pg_notify('pillarbox', %s)::text from %s where asleep limit 1), '')`
)

// The parameters of a row, in the order of insertColumns, and those that are JSON: a driver may announce them as text, which
// PostgreSQL does not cast by itself.
const (
	rowParameters    = 14
	payloadParameter = 9
	headersParameter = 11
)

// Statements have any number of rows up to anyRows, and powers of two from there to maxRows: drivers keep each text prepared, on
// both sides, and that many bounds what it takes. Beyond some hundred rows a larger statement is no faster. maxRows times
// rowParameters is far below what PostgreSQL (65,535) and SQLite (32,766) take.
const (
	anyRows = 16
	maxRows = 512
)

// rowsFor returns how many of n waiting rows the next statement takes.
func rowsFor(n int) int {
	if n <= anyRows {
		return n
	}
	rows := anyRows
	for rows*2 <= n && rows < maxRows {
		rows *= 2
	}
	return rows
}

// statements returns the text for each number of rows that rowsFor gives.
func statements(d Dialect, opts Options) map[int]string {
	all := map[int]string{}
	for n := 1; n <= maxRows; n++ {
		if rowsFor(n) == n {
			all[n] = statement(d, opts, n)
		}
	}
	return all
}

func statement(d Dialect, opts Options, rows int) string {
	b := make([]byte, 0, 512+rows*rowParameters*len("$7168,"))
	b = append(b, "insert into "+table(d, opts.Schema, "outbox_event")+" "+insertColumns...)
	for i := range rows * rowParameters {
		parameter := i % rowParameters
		switch {
		case i == 0:
			b = append(b, '(')
		case parameter == 0:
			b = append(b, "),("...)
		default:
			b = append(b, ',')
		}
		if d == SQLite {
			b = append(b, '?')
			continue
		}
		b = strconv.AppendInt(append(b, '$'), int64(i+1), 10)
		if parameter == payloadParameter || parameter == headersParameter {
			b = append(b, "::json"...)
		}
	}
	b = append(b, ")"+insertReturning...)
	if d == Postgres && !opts.NoNotify {
		b = fmt.Appendf(b, insertWaking, schema.QuoteLiteral(opts.Schema), table(d, opts.Schema, "outbox_cursor"))
	}
	return string(b)
}

func table(d Dialect, schemaName, name string) string {
	if d == SQLite {
		return name
	}
	return schema.Quote(schemaName) + "." + name
}
