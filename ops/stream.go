package ops

import (
	"cmp"
	"context"
	"database/sql"
	"math"
	"slices"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// What a page of a list looks at, at most. 10,000 candidates of which none fits take PostgreSQL about a tenth of a second.
const (
	maxCandidates = 10_000
	firstChunk    = 64 // of a stream; eight times as many with each look that does not fill the page
)

// A stream is a part of a list: deliveries of one destination that come out of one index, in the order of the list. The streams
// of a list have no delivery in common.
//
//	open     one status that is not settled: outbox_delivery_open
//	ledger   all that has a row: the primary key of outbox_delivery
//	log      a stretch of the log above the cursor, what has no row
//	gaps     what has turned visible in the gaps below the cursor and has no row
type stream struct {
	*cursor
	looking
	// candidates returns the next numbers within low to high, at most n, in the order of the list, and how far it has looked.
	candidates func(ctx context.Context, s *stream, n int) (looked, error)
	status     string // of an open stream
	// wants chooses among what has no row, of several shards: what is under way to one of them is not to another. Unless nil.
	wants func(relay.Status) bool
	// low to high is what was not looked at yet.
	low, high int64
	chunk     int
	found     []Delivery // and not taken yet
}

// looked is what one look for candidates came to.
type looked struct {
	seqs []int64
	// to is the last number that was looked at; end: there is nothing behind it.
	to  int64
	end bool
	// cost is how many rows it took.
	cost int
}

// lister goes through streams in one order.
type lister struct {
	tx          *sql.Tx
	texts       listTexts
	oldestFirst bool
	budget      int
	streams     []*stream
}

// compare puts places in the order of the list.
func (l *lister) compare(a, b place) int {
	bySeq := cmp.Compare(a.Seq, b.Seq)
	if !l.oldestFirst {
		bySeq = -bySeq
	}
	return cmp.Or(bySeq, cmp.Compare(a.Destination, b.Destination))
}

// next is the first place at which the stream may have an entry; ok is false when it has none any more.
func (l *lister) next(s *stream) (at place, ok bool) {
	switch {
	case len(s.found) > 0:
		return place{Seq: s.found[0].Seq, Destination: s.destination}, true
	case s.low > s.high:
		return place{}, false
	case l.oldestFirst:
		return place{Seq: s.low, Destination: s.destination}, true
	}
	return place{Seq: s.high, Destination: s.destination}, true
}

// first is the stream that may have the next entry of the list; nil: there is none.
func (l *lister) first() (s *stream, at place) {
	for _, candidate := range l.streams {
		if its, ok := l.next(candidate); ok && (s == nil || l.compare(its, at) < 0) {
			s, at = candidate, its
		}
	}
	return s, at
}

// take returns the first n entries, and where the list goes on; nil: nowhere. It may return fewer when it has looked at enough.
func (l *lister) take(ctx context.Context, n int) (entries []Delivery, goesOn *place, err error) {
	entries = []Delivery{}
	for {
		s, at := l.first()
		switch {
		case s == nil:
			return entries, nil, nil
		case len(s.found) > 0 && len(entries) == n:
			return entries, &at, nil
		case len(s.found) > 0:
			entries = append(entries, s.found[0])
			s.found = s.found[1:]
		case l.budget <= 0:
			return entries, &at, nil
		default:
			if err := l.look(ctx, s, n-len(entries)+1); err != nil {
				return nil, nil, err
			}
		}
	}
}

// look fills found with up to n deliveries: as many as the page still takes, so what else is among the candidates is the next
// page's.
func (l *lister) look(ctx context.Context, s *stream, n int) error {
	s.chunk = max(s.chunk*8, firstChunk)
	seen, err := s.candidates(ctx, s, min(max(s.chunk, n), l.budget))
	if err != nil {
		return err
	}
	l.budget -= seen.cost
	if len(seen.seqs) > 0 {
		if s.limit = n; s.wants != nil {
			s.limit = len(seen.seqs)
		}
		s.found, err = lookAtDeliveries(ctx, l.tx, l.texts.deliveries, s.destination, seen.seqs, s.looking)
		if err != nil {
			return err
		}
	}
	for i := range s.found {
		if s.found[i].Status == "" {
			s.pending(&s.found[i])
		}
	}
	if s.wants != nil {
		s.found = slices.DeleteFunc(s.found, func(d Delivery) bool { return !s.wants(d.Status) })
	}
	l.advance(s, seen)
	return nil
}

func (l *lister) advance(s *stream, seen looked) {
	switch {
	case seen.end:
		s.low, s.high = 1, 0
	case l.oldestFirst:
		s.low = seen.to + 1
	default:
		s.high = seen.to - 1
	}
}

// ask runs a statement that returns candidates alone.
func (l *lister) ask(ctx context.Context, n int, query string, args ...any) (looked, error) {
	seen := looked{cost: 1}
	err := each(ctx, l.tx, query, append(args, n), func(scan func(...any) error) error {
		err := scan(&seen.to)
		seen.seqs = append(seen.seqs, seen.to)
		return err
	})
	seen.cost += len(seen.seqs)
	seen.end = len(seen.seqs) < n
	return seen, err
}

func (l *lister) openCandidates(ctx context.Context, s *stream, n int) (looked, error) {
	return l.ask(ctx, n, l.texts.open, s.destination, s.status, s.low, s.high)
}

func (l *lister) ledgerCandidates(ctx context.Context, s *stream, n int) (looked, error) {
	return l.ask(ctx, n, l.texts.ledger, s.destination, s.low, s.high)
}

func (l *lister) logCandidates(ctx context.Context, s *stream, n int) (looked, error) {
	return l.ask(ctx, n, l.texts.log, s.low, s.high)
}

// gapCandidates looks at the next gaps, as many as one statement counts, and no further.
func (l *lister) gapCandidates(ctx context.Context, s *stream, n int) (looked, error) {
	const most = 100 // events_gaps.sql
	var count int
	var low, high int64
	if err := l.tx.QueryRowContext(ctx, l.texts.gaps, s.destination, s.low, s.high).Scan(&count, &low, &high); err != nil {
		return looked{}, err
	}
	if count == 0 {
		return looked{cost: 1, end: true}, nil
	}
	seen, err := l.ask(ctx, n, l.texts.gapRows, s.destination, low, high)
	if err != nil || !seen.end {
		return seen, err
	}
	seen.cost += count
	seen.end = count < most
	if seen.to = high; !l.oldestFirst {
		seen.to = low
	}
	return seen, nil
}

// within makes the stream begin at a place of the list.
func (l *lister) within(s *stream, at place) {
	from := at.Seq
	before := cmp.Compare(s.destination, at.Destination) < 0 // its entry of that number was taken already
	switch {
	case l.oldestFirst && before && from < math.MaxInt64:
		s.low = max(s.low, from+1)
	case l.oldestFirst:
		s.low = max(s.low, from)
	case before:
		s.high = min(s.high, from-1)
	default:
		s.high = min(s.high, from)
	}
}
