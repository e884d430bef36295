package postgres

import (
	"encoding/binary"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// cursorArgs are the parameters of settleCursor.
func cursorArgs(l relay.LeaseID, s relay.Settlement, place pgtype.TID) []any {
	return append(make([]any, 0, 24), l.Destination, l.Epoch, l.Owner, l.TTL.Microseconds(),
		s.Position, multirange(s.Gaps), s.InFlightTo, s.CrashCount, s.Asleep, clean(s.Trouble),
		clean(s.Pause.Reason), clean(s.Pause.By), place, s.Number)
}

// multirange is the text of an int8multirange.
func multirange(ranges []relay.Range) string {
	b := make([]byte, 0, 2+24*len(ranges))
	b = append(b, '{')
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
	return string(append(b, '}'))
}

// receiptArgs are the parameters of settlePublished.
func receiptArgs(published []relay.Receipt) []any {
	seqs, receipts := make([]int64, len(published)), make([]string, len(published))
	for i, p := range published {
		seqs[i], receipts[i] = p.Seq, clean(p.Receipt)
	}
	return []any{seqs, receipts}
}

// allRows are all deliveries of a settlement as rows that stand over what was there.
func allRows(s relay.Settlement) []relay.Row {
	rows := make([]relay.Row, 0, len(s.Published)+len(s.Rows))
	for _, p := range s.Published {
		rows = append(rows, relay.Row{
			Seq: p.Seq, Status: relay.StatusPublished, Attempts: 1, Attempted: true, Receipt: p.Receipt,
		})
	}
	return append(rows, s.Rows...)
}

// rowArgs are the parameters of settleRows: one array for each column. Of rows with the same number the last one counts: a
// statement cannot write a row twice.
func rowArgs(rows []relay.Row) []any {
	last := make(map[int64]int, len(rows))
	for i, r := range rows {
		last[r.Seq] = i
	}
	n := len(last)
	seqs, statuses := make([]int64, 0, n), make([]string, 0, n)
	attempts, attempted := make([]int32, 0, n), make([]bool, 0, n)
	nextIn := make([]*int64, 0, n) // microseconds
	endpoints, keys := make([]string, 0, n), make([]*string, 0, n)
	receipts, codes, messages := make([]string, 0, n), make([]string, 0, n), make([]string, 0, n)
	for i, r := range rows {
		if last[r.Seq] != i {
			continue
		}
		seqs, statuses = append(seqs, r.Seq), append(statuses, string(r.Status))
		attempts, attempted = append(attempts, int32(min(r.Attempts, math.MaxInt32))), append(attempted, r.Attempted)
		var in *int64
		if r.Due {
			us := r.NextIn.Microseconds()
			in = &us
		}
		var key *string
		if r.OpenLane {
			k := clean(r.Key)
			key = &k
		}
		nextIn, keys = append(nextIn, in), append(keys, key)
		endpoints, receipts = append(endpoints, clean(r.Endpoint)), append(receipts, clean(r.Receipt))
		codes, messages = append(codes, clean(r.ErrorCode)), append(messages, clean(r.ErrorMessage))
	}
	return []any{seqs, statuses, attempts, attempted, nextIn, endpoints, keys, receipts, codes, messages}
}

// clean makes a text that PostgreSQL can keep: one answer with a broken character must not keep a settle from succeeding.
func clean(text string) string {
	if !utf8.ValidString(text) {
		text = strings.ToValidUTF8(text, "\uFFFD")
	}
	if strings.IndexByte(text, 0) >= 0 {
		text = strings.ReplaceAll(text, "\x00", "\uFFFD")
	}
	return text
}

// copySignature begins the binary format of COPY; flags and the length of the header extension, both 0, follow it.
const copySignature = "PGCOPY\n\xff\r\n\x00" + "\x00\x00\x00\x00" + "\x00\x00\x00\x00"

// copyRows is what copySQL reads.
func copyRows(destination string, at time.Time, published []relay.Receipt) []byte {
	// All but the number and the receipt is the same in each row.
	const columns = 6
	same := appendField(nil, binary.BigEndian.AppendUint64(nil, uint64(at.UnixMicro()-epoch)))
	same = appendField(same, binary.BigEndian.AppendUint32(nil, 1))
	same = appendField(same, []byte(destination))
	same = appendField(same, []byte(relay.StatusPublished))

	const perRow = 2 + (4 + 8) + (4 + 20)
	b := append(make([]byte, 0, len(copySignature)+len(published)*(perRow+len(same))+2), copySignature...)
	for _, p := range published {
		b = binary.BigEndian.AppendUint16(b, columns)
		b = binary.BigEndian.AppendUint32(b, 8)
		b = binary.BigEndian.AppendUint64(b, uint64(p.Seq))
		b = append(b, same...)
		if receipt := clean(p.Receipt); receipt != "" {
			b = binary.BigEndian.AppendUint32(b, uint32(len(receipt)))
			b = append(b, receipt...)
		} else {
			b = append(b, 0xff, 0xff, 0xff, 0xff) // null
		}
	}
	return append(b, 0xff, 0xff) // the end
}

func appendField(b, value []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(value)))
	return append(b, value...)
}
