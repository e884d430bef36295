package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// The rows are joined to themselves so that an unwanted one is a bare number: no more than its topic is looked at.
const (
	readAboveSQL = `
select l.seq, ` + eventColumns + `
  from outbox_event l left join outbox_event e on e.seq = l.seq%s
 where l.seq > ?1
 order by l.seq
 limit ?2`

	readGapSQL = `
select l.seq, ` + eventColumns + `
  from outbox_event l left join outbox_event e on e.seq = l.seq%s
 where l.seq between ?1 and ?2
 order by l.seq`
)

// Read implements relay.Log.
//
// Writers are serialised, so whatever is missing below a number that is visible was never committed: the page's horizon is
// above every bound, which makes each gap dead when it is looked at for the first time after the settle that gave it its bound.
// There are gaps where rows were deleted, or inserted with numbers of their own.
func (s *Store) Read(ctx context.Context, q relay.Query) (relay.Page, error) {
	defer s.wal.reading()()
	p := pageReader{q: q, row: newEventRow(), now: s.now()}
	p.page.Horizon, p.page.Now = math.MaxUint64, p.now
	if err := p.read(ctx, s.reader); err != nil {
		return relay.Page{}, s.failed(ctx, "read the log", err)
	}
	return p.page, nil
}

// pageReader fills a page.
type pageReader struct {
	q     relay.Query
	row   *eventRow
	now   time.Time
	page  relay.Page
	bytes int
}

// read sees one snapshot: without gaps one statement is enough, with gaps a transaction holds both together.
func (p *pageReader) read(ctx context.Context, db *sql.DB) error {
	if len(p.q.Gaps) == 0 {
		return p.above(ctx, db)
	}
	tx, err := db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return err
	}
	defer tx.Rollback() // nothing was written
	if err := p.gaps(ctx, tx); err != nil || p.page.GapsCut {
		return err
	}
	return p.above(ctx, tx)
}

// querier is a database or a transaction.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

func (p *pageReader) gaps(ctx context.Context, tx *sql.Tx) error {
	query, err := tx.PrepareContext(ctx, fmt.Sprintf(readGapSQL, wanted(p.q.Topics)))
	if err != nil {
		return err
	}
	defer query.Close()
	for _, gap := range p.q.Gaps {
		rows, err := query.QueryContext(ctx, p.args(gap.First, gap.Last)...)
		if err != nil {
			return err
		}
		p.page.GapSeqs, p.page.GapsCut, err = p.take(rows, p.page.GapSeqs)
		p.page.Full = p.page.GapsCut
		if err != nil || p.page.GapsCut {
			return err
		}
	}
	return nil
}

func (p *pageReader) above(ctx context.Context, db querier) error {
	rows, err := db.QueryContext(ctx, fmt.Sprintf(readAboveSQL, wanted(p.q.Topics)), p.args(p.q.After, int64(p.q.Limit))...)
	if err != nil {
		return err
	}
	p.page.Seqs, p.page.Full, err = p.take(rows, nil)
	p.page.Full = p.page.Full || len(p.page.Seqs) == p.q.Limit
	return err
}

// take reads rows into the page, closes them, and appends their numbers. cut: there was one for which the page had no room.
func (p *pageReader) take(rows *sql.Rows, seqs []int64) (all []int64, cut bool, err error) {
	defer rows.Close()
	for rows.Next() {
		seq, err := p.row.scan(rows)
		if err != nil {
			return seqs, false, err
		}
		if len(seqs) == p.q.Limit {
			return seqs, true, nil
		}
		if event := p.row.event(p.now); event != nil {
			if len(p.page.Events) > 0 && p.bytes+event.Size() > p.q.MaxBytes {
				return seqs, true, nil
			}
			p.bytes += event.Size()
			p.page.Events = append(p.page.Events, event)
		}
		seqs = append(seqs, seq)
	}
	return seqs, false, rows.Err()
}

// args returns two numbers and the patterns.
func (p *pageReader) args(one, two int64) []any {
	args := []any{one, two}
	for _, pattern := range p.q.Topics {
		args = append(args, globPattern(pattern))
	}
	return args
}

// wanted returns the condition that an event's topic fits one of the patterns, which are the parameters from ?3 on.
func wanted(topics relay.Topics) string {
	if len(topics) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString(" and (")
	for i := range topics {
		if i > 0 {
			b.WriteString(" or ")
		}
		b.WriteString("l.topic_name glob ?" + strconv.Itoa(i+3))
	}
	return b.String() + ")"
}

// globPattern turns a pattern of relay.Topics into one of SQLite's GLOB, which is case-sensitive as well, knows * as well, and
// two more that are taken for what they are when they stand in brackets.
func globPattern(pattern string) string {
	return globEscapes.Replace(pattern)
}

var globEscapes = strings.NewReplacer("?", "[?]", "[", "[[]")

// encodeRanges and decodeRanges are how gaps stand in outbox_cursor: [[1,5],[7,7]].
func encodeRanges(ranges []relay.Range) string {
	b := []byte{'['}
	for i, r := range ranges {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '[')
		b = strconv.AppendInt(b, r.First, 10)
		b = append(b, ',')
		b = strconv.AppendInt(b, r.Last, 10)
		b = append(b, ']')
	}
	return string(append(b, ']'))
}

func decodeRanges(text string) ([]relay.Range, error) {
	var pairs [][2]int64
	if err := json.Unmarshal([]byte(text), &pairs); err != nil {
		return nil, fmt.Errorf("outbox_cursor.gaps holds %.100q, not a list of pairs of numbers: %w", text, err)
	}
	var ranges []relay.Range
	for _, p := range pairs {
		ranges = append(ranges, relay.Range{First: p[0], Last: p[1]})
	}
	return ranges, nil
}
