package outbox

import (
	"fmt"
	"strconv"

	"github.com/pillarbox-dev/pillarbox/outbox/internal/txn"
	"github.com/pillarbox-dev/pillarbox/outbox/schema"
)

// The INSERT, of one or more rows. A row that is there already is passed over, and the ids of what was written come back.
//
// It has two shapes. Most events need the narrow one: fewer parameters, and only event_id may be there already. The wide one has
// everything, and dedup_key may be there too. PostgreSQL has no way to name two unique keys, so it names none; then a number
// that is there already, because somebody has set the sequence back, is passed over as well, and would be taken for a
// duplicate: see verify. (SQLite's autoincrement does not go back.)
//
// insertWaking wakes a relay that sleeps. It adds nothing to the id (what pg_notify returns is empty text), but being part of
// it, it is evaluated, once, when a row was written. NOTIFY takes a cluster-wide lock at commit; over cursors that are asleep,
// it is not sent when there are none.
const (
	insertNarrow = ` (event_id, topic_name, partition_key, aggregate_type, aggregate_id, aggregate_version, event_type,
 event_version, schema_ref, payload, headers) values `
	insertWide = ` (event_id, topic_name, partition_key, aggregate_type, aggregate_id, aggregate_version, event_type,
 event_version, schema_ref, payload, headers, payload_bytes, dedup_key, available_at) values `

	narrowReturning = `
on conflict (event_id) do nothing returning event_id`
	wideReturning = `
on conflict do nothing returning event_id`
	insertWaking = ` || coalesce((
 select pg_catalog.pg_notify('pillarbox', %s)::text from %s where asleep limit 1), '')`

	// selectPresent returns which of some ids and keys, two JSON arrays of text, are in the log.
	selectPresent = `select 'id ' || event_id from %[1]s where event_id in (select json_array_elements_text($1::json))
union all select 'key ' || dedup_key from %[1]s where dedup_key in (select json_array_elements_text($2::json))`
)

// The parameters of a row.
const (
	narrowParameters = 11
	wideParameters   = 14
)

// Statements have any number of rows up to anyRows, and powers of two from there to maxRows: drivers keep each text prepared, on
// both sides, and that many bounds what it takes. Beyond some hundred rows a larger statement is no faster. maxRows times
// wideParameters is far below what PostgreSQL (65,535) and SQLite (32,766) take.
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

// statements are the texts of one outbox. They never change.
type statements struct {
	narrow, wide map[int]string // by the number of rows
	present      string
}

func newStatements(d Dialect, opts Options) *statements {
	s := &statements{
		narrow:  map[int]string{},
		wide:    map[int]string{},
		present: fmt.Sprintf(selectPresent, txn.Table(d, opts.Schema, "outbox_event")),
	}
	for n := 1; n <= maxRows; n++ {
		if rowsFor(n) == n {
			s.narrow[n] = insertStatement(d, opts, insertNarrow, narrowParameters, n, narrowReturning)
			s.wide[n] = insertStatement(d, opts, insertWide, wideParameters, n, wideReturning)
		}
	}
	return s
}

func insertStatement(d Dialect, opts Options, columns string, parameters, rows int, returning string) string {
	b := make([]byte, 0, 512+rows*parameters*len("$7168,"))
	b = append(b, "insert into "+txn.Table(d, opts.Schema, "outbox_event")+columns...)
	for i := range rows * parameters {
		switch {
		case i == 0:
			b = append(b, '(')
		case i%parameters == 0:
			b = append(b, "),("...)
		default:
			b = append(b, ',')
		}
		if d == SQLite {
			b = append(b, '?')
		} else {
			b = strconv.AppendInt(append(b, '$'), int64(i+1), 10)
		}
	}
	b = append(b, ")"+returning...)
	if d == Postgres && !opts.NoNotify {
		b = fmt.Appendf(b, insertWaking, schema.QuoteLiteral(opts.Schema), txn.Table(d, opts.Schema, "outbox_cursor"))
	}
	return string(b)
}
