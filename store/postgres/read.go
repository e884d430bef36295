package postgres

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// A read is one of four statements: with or without gaps, for all events or for some of the topics and keys. $1 is the position,
// $2 the limit, $3 the patterns, and the last two are the ends of the gaps.
//
// The first row holds the snapshot's horizon and the time, so that both are there when no event is. {event} are the
// columns of eventSQL; of an event that is not wanted all but seq are null.
//
// The parts come in the order they are written, and each walks an index in order: nothing is sorted. Store.Read makes sure
// that the numbers ascend.
const (
	readHead = `
select null::bigint as seq, {event}, pg_snapshot_xmin(pg_current_snapshot()) as horizon, clock_timestamp() as now
  from (select) as head left join {schema}.outbox_event e on false`

	readGaps = `
union all
(select e.seq, {event}, null, null
   from unnest($3::bigint[], $4::bigint[]) as gap (first, last)
  cross join lateral (select * from {schema}.outbox_event
                       where seq between gap.first and gap.last order by seq limit $2) as e
  limit $2)`

	readGapsTopics = `
union all
(select s.seq, {event}, null, null
   from unnest($4::bigint[], $5::bigint[]) as gap (first, last)
  cross join lateral (select * from {schema}.outbox_event
                       where seq between gap.first and gap.last order by seq limit $2) as s
   left join lateral (select s.* where s.topic_name like any ($3){event_in_shard}) as e on true
  limit $2)`

	readRows = `
union all
(select e.seq, {event}, null, null
   from {schema}.outbox_event e
  where e.seq > $1 order by e.seq limit $2)`

	readRowsTopics = `
union all
(select s.seq, {event}, null, null
   from (select * from {schema}.outbox_event where seq > $1 order by seq limit $2) as s
   left join lateral (select s.* where s.topic_name like any ($3){event_in_shard}) as e on true)`
)

// Columns of a read besides those of the event.
const (
	columnHorizon = eventColumns + iota
	columnNow
	readColumns
)

// Read implements relay.Log.
func (s *Store) Read(ctx context.Context, q relay.Query) (relay.Page, error) {
	page, err := s.readPage(ctx, q)
	if err != nil {
		return relay.Page{}, s.failed("read the log", err)
	}
	return page, nil
}

func (s *Store) readPage(ctx context.Context, q relay.Query) (relay.Page, error) {
	limit := s.pages.limit(q)
	sql, args := s.readStatement(q, limit)
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return relay.Page{}, err
	}
	defer conn.Release()
	rows, err := conn.Query(ctx, sql, args...)
	if err != nil {
		return relay.Page{}, err
	}
	defer rows.Close()

	r := pageReader{query: q, limit: limit}
	for rows.Next() && !r.wasteful() {
		if err := r.row(rows.RawValues()); err != nil {
			return relay.Page{}, err
		}
	}
	if r.wasteful() {
		abandon(conn)
	} else {
		rows.Close()
		if err := rows.Err(); err != nil {
			return relay.Page{}, err
		}
	}
	s.pages.saw(r.bytes, len(r.page.Events))
	return r.finish(), nil
}

func (s *Store) readStatement(q relay.Query, limit int) (sql string, args []any) {
	args = []any{allBinary, q.After, limit}
	byGaps, byTopics := 0, 0
	if len(q.Topics) > 0 || !q.Shard.Whole() {
		byTopics = 1
		args = append(args, likePatterns(q.Topics))
	}
	if len(q.Gaps) > 0 {
		byGaps = 1
		first, last := make([]int64, len(q.Gaps)), make([]int64, len(q.Gaps))
		for i, g := range q.Gaps {
			first[i], last[i] = g.First, g.Last
		}
		args = append(args, first, last)
	}
	return s.statements(q.Shard).read[byGaps][byTopics], args
}

// allBinary asks for every column in its binary format, which is the one that is decoded here.
var allBinary = pgx.QueryResultFormats{pgx.BinaryFormatCode}

var likeEscapes = strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`, `*`, `%`)

// likePatterns are the patterns as LIKE has them; no topics are all.
func likePatterns(topics relay.Topics) []string {
	if len(topics) == 0 {
		return []string{"%"}
	}
	patterns := make([]string, len(topics))
	for i, topic := range topics {
		patterns[i] = likeEscapes.Replace(topic)
	}
	return patterns
}

// pageReader gathers the rows of one page.
type pageReader struct {
	query relay.Query
	limit int

	page   relay.Page
	events eventReader
	now    int64 // the database's clock, in its own format
	bytes  int   // of the wanted events that were kept
	cut    bool  // MaxBytes was reached: what follows is thrown away
	wasted int   // bytes that were thrown away
}

func (r *pageReader) row(values [][]byte) error {
	if len(values) != readColumns {
		return fmt.Errorf("a row of the log has %d columns, want %d", len(values), readColumns)
	}
	if values[columnHorizon] != nil {
		return r.head(values)
	}
	if r.cut {
		r.wasted += rowBytes(values)
		return nil
	}
	seq, err := bigint(values[columnSeq])
	if err != nil {
		return err
	}
	if values[columnEventID] == nil { // not wanted
		return r.add(seq)
	}
	event, err := r.events.read(values, r.now)
	if err != nil {
		return fmt.Errorf("event %d: %w", seq, err)
	}
	size := event.Size()
	if len(r.page.Events) > 0 && r.bytes+size > r.query.MaxBytes {
		r.cut = true
		r.page.GapsCut = seq <= r.query.After
		return nil
	}
	r.bytes += size
	r.page.Events = append(r.page.Events, event)
	return r.add(seq)
}

func (r *pageReader) head(values [][]byte) error {
	horizon, err := bigint(values[columnHorizon])
	if err != nil {
		return err
	}
	r.page.Horizon = uint64(horizon)
	if r.now, err = bigint(values[columnNow]); err != nil {
		return err
	}
	r.page.Now = timestamp(r.now)
	return nil
}

// add appends a number. It must be higher than all before: the cursor takes whatever is missing for a gap, and a number that
// came too late would be taken for one that was never there.
func (r *pageReader) add(seq int64) error {
	seqs, above := &r.page.Seqs, r.query.After
	if seq <= r.query.After {
		seqs, above = &r.page.GapSeqs, math.MinInt64
	}
	if n := len(*seqs); n > 0 {
		above = (*seqs)[n-1]
	}
	if seq <= above {
		return fmt.Errorf("the database returned event %d after %d, out of order", seq, above)
	}
	*seqs = append(*seqs, seq)
	return nil
}

// finish marks what was cut. When the limit was reached within the gaps, some above the last number that was seen were not
// looked at, and the rows above the position are left for a later page.
func (r *pageReader) finish() relay.Page {
	p := &r.page
	if len(p.GapSeqs) >= r.limit && !p.GapsCut {
		p.GapsCut = true
		wanted := 0
		for wanted < len(p.Events) && p.Events[wanted].Seq <= r.query.After {
			wanted++
		}
		p.Events, p.Seqs = p.Events[:wanted], nil
	}
	p.Full = r.cut || p.GapsCut || len(p.Seqs) >= r.limit
	return *p
}

// wasteful says that what is still to come is not worth its way.
func (r *pageReader) wasteful() bool { return r.wasted > maxWaste }

// abandon breaks the connection off in the middle of a statement. The pool replaces it.
func abandon(conn *pgxpool.Conn) {
	ended, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Conn().Close(ended)
}

const (
	// maxWaste is what a page may read beyond MaxBytes before the connection is broken off.
	maxWaste = 32 << 20
	// firstPageLimit bounds the rows of a page while nothing is known about their size.
	firstPageLimit = 1000
)

// pageSize keeps pages near their MaxBytes although a statement can only be given a number of rows: it remembers how large
// events were.
type pageSize struct {
	average atomic.Int64 // bytes of an event; 0: none was seen
}

// limit is the number of rows to ask for: what the query allows, and not much more than fits. Some more, because those that
// are not wanted take no room.
func (p *pageSize) limit(q relay.Query) int {
	average := p.average.Load()
	if average == 0 {
		return max(1, min(q.Limit, firstPageLimit))
	}
	return max(1, min(q.Limit, (q.MaxBytes+maxWaste/2)/int(average)))
}

// saw takes a page in. The average follows larger events at once and smaller ones step by step.
func (p *pageSize) saw(bytes, events int) {
	if events == 0 {
		return
	}
	before, now := p.average.Load(), int64(bytes/events)
	p.average.Store(max(now, before-before/8, 1))
}
