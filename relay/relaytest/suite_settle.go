package relaytest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// settleTests are about relay.Ledger's Settle.
func settleTests() []storeTest {
	return []storeTest{
		{name: "Published appends rows", run: settlePublished},
		{name: "Published stands over what was there", run: settlePublishedAgain},
		{name: "Rows are written with all they say", run: settleRows},
		{name: "Rows leave nothing of what was there", run: settleReplaces},
		{name: "texts keep every character", run: settleTexts},
		{name: "5,000 rows and as many receipts at once", run: settleMany},
		{name: "numbers go up to 2^62", run: settleBigNumbers},
		{name: "nothing to write is no error", run: settleEmpty},
		{name: "all or nothing", run: settleAtomic},
		{name: "failing_since lasts while there is trouble", run: settleTrouble},
		{name: "asleep is as the last settle says", run: settleAsleep},
		{name: "a number is settled once", run: settleRepeated},
		{name: "a settle that arrives late writes nothing", run: settleLate},
	}
}

// recent reports a time that is not within the test.
func (b *storeBench) recent(what string, at time.Time) {
	b.Helper()
	if at.IsZero() || time.Since(at).Abs() > time.Minute {
		b.Errorf("%s is %v, want now", what, at)
	}
}

func settlePublished(b *storeBench) {
	l := b.lease()
	b.settle(l, relay.Settlement{Position: 3, InFlightTo: 9, Published: []relay.Receipt{
		{Seq: 1, Receipt: "3@17"}, {Seq: 3}, {Seq: 2, Receipt: "200"},
	}})
	rows := b.Deliveries(b, b.dest)
	if len(rows) != 3 {
		b.Fatalf("got %d rows, want 3: %+v", len(rows), rows)
	}
	for i, receipt := range []string{"3@17", "200", ""} {
		row := rows[i]
		b.recent("published_at", row.PublishedAt)
		row.PublishedAt, row.LastAttemptAt = time.Time{}, time.Time{}
		check(b, "the row", row, DeliveryRow{Seq: int64(i + 1), Status: relay.StatusPublished, Attempts: 1, Receipt: receipt})
	}
	cursor := b.cursor()
	check(b, "the position", cursor.Position, 3)
	check(b, "in flight to", cursor.InFlightTo, 9)
}

func settlePublishedAgain(b *storeBench) {
	l := b.lease()
	b.settle(l, relay.Settlement{
		Published: []relay.Receipt{{Seq: 1, Receipt: "old"}},
		Rows: []relay.Row{
			{Seq: 2, Status: relay.StatusQuarantined, Attempts: 4, Attempted: true, Endpoint: "e", Key: "k", OpenLane: true,
				ErrorCode: "HTTP_422", ErrorMessage: "no"},
			{Seq: 3, Status: relay.StatusFailed, Attempts: 2, Due: true, ErrorCode: "TIMEOUT"},
		},
	})
	// An operator moved the cursor back: all of it is published again.
	b.settle(l, relay.Settlement{Published: []relay.Receipt{
		{Seq: 1, Receipt: "new"}, {Seq: 2, Receipt: "new"}, {Seq: 3, Receipt: "new"},
	}})
	for _, row := range b.Deliveries(b, b.dest) {
		if row.Status != relay.StatusPublished || row.Receipt != "new" || row.PublishedAt.IsZero() {
			b.Errorf("row %d: %+v, want it published with the new receipt", row.Seq, row)
		}
		if row.OpenLane || !row.NextAttemptAt.IsZero() || row.LockedBy != "" {
			b.Errorf("row %d: %+v, want it out of every lane, neither due nor locked", row.Seq, row)
		}
	}
}

func settleRows(b *storeBench) {
	l := b.lease()
	b.settle(l, relay.Settlement{Rows: []relay.Row{
		{Seq: 1, Status: relay.StatusFailed, Attempts: 3, Attempted: true, Endpoint: "e1", Key: "k1", OpenLane: true,
			Due: true, NextIn: time.Hour, ErrorCode: "HTTP_503", ErrorMessage: "try later"},
		{Seq: 2, Status: relay.StatusPending, Endpoint: "e1", Key: "k1", OpenLane: true},
		{Seq: 3, Status: relay.StatusPending, Key: "not kept", Due: true},
		{Seq: 4, Status: relay.StatusPublishing, Attempts: 1, Endpoint: "e2", Key: "k2", OpenLane: true},
		{Seq: 5, Status: relay.StatusPublished, Attempts: 2, Attempted: true, Endpoint: "e2", Receipt: "7@9"},
		{Seq: 6, Status: relay.StatusQuarantined, Attempts: 10, Attempted: true, Endpoint: "e3", Key: "k3",
			ErrorCode: relay.CodeExhausted, ErrorMessage: "gave up"},
		{Seq: 7, Status: relay.StatusDiscarded, Attempts: 1, Endpoint: "e3"},
	}})
	rows := b.Deliveries(b, b.dest)
	want := []DeliveryRow{
		{Seq: 1, Status: relay.StatusFailed, Attempts: 3, Endpoint: "e1", OpenLane: true, Key: "k1",
			ErrorCode: "HTTP_503", ErrorMessage: "try later"},
		{Seq: 2, Status: relay.StatusPending, Endpoint: "e1", OpenLane: true, Key: "k1"},
		{Seq: 3, Status: relay.StatusPending},
		{Seq: 4, Status: relay.StatusPublishing, Attempts: 1, Endpoint: "e2", OpenLane: true, Key: "k2", LockedBy: "relay"},
		{Seq: 5, Status: relay.StatusPublished, Attempts: 2, Receipt: "7@9"},
		{Seq: 6, Status: relay.StatusQuarantined, Attempts: 10, Endpoint: "e3",
			ErrorCode: relay.CodeExhausted, ErrorMessage: "gave up"},
		{Seq: 7, Status: relay.StatusDiscarded, Attempts: 1, Endpoint: "e3"},
	}
	if len(rows) != len(want) {
		b.Fatalf("got %d rows, want %d", len(rows), len(want))
	}
	for i, row := range rows {
		times := timesOf(row)
		row.NextAttemptAt, row.LastAttemptAt, row.PublishedAt, row.LockedAt = time.Time{}, time.Time{}, time.Time{}, time.Time{}
		check(b, "the row", row, want[i])
		check(b, fmt.Sprintf("times of row %d", row.Seq), times, map[int64]string{
			1: "next last", 3: "next", 4: "locked", 5: "last published", 6: "last",
		}[row.Seq])
	}
	if in := time.Until(rows[0].NextAttemptAt); in > time.Hour+time.Minute || in < 59*time.Minute {
		b.Errorf("row 1 is due in %v, want an hour", in)
	}
	b.recent("next_attempt_at of row 3", rows[2].NextAttemptAt)
	b.recent("last_attempt_at of row 1", rows[0].LastAttemptAt)
	b.recent("locked_at of row 4", rows[3].LockedAt)
	b.recent("published_at of row 5", rows[4].PublishedAt)
}

// timesOf names the times of a row that are set.
func timesOf(r DeliveryRow) string {
	var set []string
	for _, t := range []struct {
		name string
		at   time.Time
	}{{"next", r.NextAttemptAt}, {"last", r.LastAttemptAt}, {"published", r.PublishedAt}, {"locked", r.LockedAt}} {
		if !t.at.IsZero() {
			set = append(set, t.name)
		}
	}
	return strings.Join(set, " ")
}

func settleReplaces(b *storeBench) {
	l := b.lease()
	full := relay.Row{Seq: 1, Status: relay.StatusPublishing, Attempts: 5, Attempted: true, Endpoint: "e", Key: "k", OpenLane: true,
		Due: true, NextIn: time.Hour, Receipt: "r", ErrorCode: "C", ErrorMessage: "m"}
	for _, status := range []relay.Status{
		relay.StatusPublished, relay.StatusPending, relay.StatusFailed, relay.StatusQuarantined, relay.StatusDiscarded,
	} {
		b.settle(l, relay.Settlement{Rows: []relay.Row{full}})
		b.settle(l, relay.Settlement{Rows: []relay.Row{{Seq: 1, Status: status, Attempts: 1}}})
		got := b.row(1)
		got.LastAttemptAt, got.PublishedAt = time.Time{}, time.Time{}
		check(b, "the row that became "+string(status), got, DeliveryRow{Seq: 1, Status: status, Attempts: 1})
	}
}

func settleTexts(b *storeBench) {
	l := b.lease()
	for i, text := range []string{
		"", "plain", strings.Repeat("ü", relay.MaxErrorMessage/2), strings.Repeat("🙂", relay.MaxErrorMessage/4),
		`quotes ' " \ and $1 %s {a,b} NULL`, "line\nbreak\ttab\r\x01",
	} {
		seq := int64(i + 1)
		b.settle(l, relay.Settlement{
			Rows: []relay.Row{{Seq: seq, Status: relay.StatusQuarantined, Endpoint: text, Key: text, OpenLane: true, Receipt: text,
				ErrorCode: text, ErrorMessage: text}},
			Published: []relay.Receipt{{Seq: seq + 100, Receipt: text}},
			Trouble:   text, Pause: relay.Pause{Reason: text, By: text},
		})
		row := b.row(seq)
		check(b, "endpoint", row.Endpoint, text)
		check(b, "key", row.Key, text)
		check(b, "receipt", row.Receipt, text)
		check(b, "code", row.ErrorCode, text)
		check(b, "message", row.ErrorMessage, text)
		check(b, "receipt of a first success", b.row(seq+100).Receipt, text)
		cursor := b.cursor()
		check(b, "trouble", cursor.ErrorCode, text)
		if text != "" {
			check(b, "pause", cursor.Pause, relay.Pause{Reason: text, By: text})
		}
	}
}

func settleMany(b *storeBench) {
	const n = 5000
	l := b.lease()
	s := relay.Settlement{Position: 10 * n}
	for i := range int64(n) {
		s.Published = append(s.Published, relay.Receipt{Seq: 10*i + 1, Receipt: fmt.Sprint("0@", i)})
		s.Rows = append(s.Rows, relay.Row{Seq: 10*i + 2, Status: relay.StatusFailed, Attempts: 1, Key: fmt.Sprint(i), OpenLane: true,
			Due: true, NextIn: time.Hour, ErrorCode: "TIMEOUT", ErrorMessage: "no answer"})
		s.Gaps = append(s.Gaps, relay.Range{First: 10*i + 4, Last: 10*i + 5})
	}
	b.settle(l, s)
	check(b, "rows", len(b.Deliveries(b, b.dest)), 2*n)
	check(b, "gaps", b.cursor().Gaps, s.Gaps)
	check(b, "the last receipt", b.row(10*(n-1)+1).Receipt, fmt.Sprint("0@", n-1))
	check(b, "the last row's key", b.row(10*(n-1)+2).Key, fmt.Sprint(n-1))
	b.settle(l, s) // every row is there already
	check(b, "rows after the same settle again", len(b.Deliveries(b, b.dest)), 2*n)
}

func settleBigNumbers(b *storeBench) {
	const big = int64(1) << 62
	l := b.lease()
	b.settle(l, relay.Settlement{
		Position: big, InFlightTo: big + 1, Gaps: []relay.Range{{First: big - 2, Last: big - 1}},
		Published: []relay.Receipt{{Seq: big}}, Rows: []relay.Row{{Seq: big + 1, Status: relay.StatusPending, Due: true}},
	})
	cursor := b.cursor()
	check(b, "the cursor", []int64{cursor.Position, cursor.InFlightTo}, []int64{big, big + 1})
	check(b, "the gaps", cursor.Gaps, []relay.Range{{First: big - 2, Last: big - 1}})
	check(b, "the first row", b.row(big).Status, relay.StatusPublished)
	check(b, "the second row", b.row(big+1).Status, relay.StatusPending)
}

func settleEmpty(b *storeBench) {
	l := b.lease()
	b.settle(l, relay.Settlement{})
	b.settle(l, relay.Settlement{Published: []relay.Receipt{}, Rows: []relay.Row{}, Gaps: []relay.Range{}})
	check(b, "rows", len(b.Deliveries(b, b.dest)), 0)
}

func settleAtomic(b *storeBench) {
	l := b.lease()
	b.settle(l, relay.Settlement{Position: 1, Published: []relay.Receipt{{Seq: 1}}})
	before := b.cursor()
	broken := relay.Settlement{
		Position: 9, InFlightTo: 99, CrashCount: 5, Gaps: []relay.Range{{First: 2, Last: 3}}, Trouble: "X", Asleep: true,
		Published: []relay.Receipt{{Seq: 4}}, Rows: []relay.Row{failed(1, "", later), parked(5, "")},
		Pause: relay.Pause{Reason: "x", By: "x"},
	}
	cancelled, cancel := context.WithCancel(b.Context())
	cancel()
	if _, err := b.store.Settle(cancelled, l, broken); !errors.Is(err, context.Canceled) {
		b.Errorf("with a context that has ended: got error %v, want one that is context.Canceled", err)
	}
	// The database refuses a row: nothing of the settle may stand.
	broken.Rows = append(broken.Rows, relay.Row{Seq: 6, Status: "NONSENSE"})
	if _, err := b.store.Settle(b.Context(), l, broken); err == nil || errors.Is(err, relay.ErrLeaseLost) {
		b.Errorf("with a status that does not exist: got error %v, want one that is not a lost lease", err)
	}
	after := b.cursor()
	after.ExpiresAt = before.ExpiresAt
	check(b, "the cursor", after, before)
	rows := b.Deliveries(b, b.dest)
	if len(rows) != 1 || rows[0].Status != relay.StatusPublished {
		b.Errorf("rows %+v, want the one that was published before", rows)
	}
	b.settle(l, relay.Settlement{Position: 2}) // the store is as good as before
}

func settleTrouble(b *storeBench) {
	l := b.lease()
	b.settle(l, relay.Settlement{})
	check(b, "failing_since without trouble", b.cursor().FailingSince, time.Time{})
	b.settle(l, relay.Settlement{Trouble: "REFUSED"})
	first := b.cursor()
	b.recent("failing_since", first.FailingSince)
	check(b, "last_error_code", first.ErrorCode, "REFUSED")
	time.Sleep(5 * time.Millisecond)
	b.settle(l, relay.Settlement{Trouble: "TIMEOUT"})
	second := b.cursor()
	check(b, "failing_since of trouble that lasts", second.FailingSince, first.FailingSince)
	check(b, "last_error_code of trouble that changed", second.ErrorCode, "TIMEOUT")
	b.settle(l, relay.Settlement{})
	check(b, "failing_since after the trouble", b.cursor().FailingSince, time.Time{})
	time.Sleep(5 * time.Millisecond)
	b.settle(l, relay.Settlement{Trouble: "TIMEOUT"})
	if again := b.cursor().FailingSince; !again.After(first.FailingSince) {
		b.Errorf("failing_since of new trouble is %v, want later than the old %v", again, first.FailingSince)
	}
}

func settleAsleep(b *storeBench) {
	l := b.lease()
	for _, asleep := range []bool{true, true, false, true} {
		b.settle(l, relay.Settlement{Asleep: asleep})
		check(b, "asleep", b.cursor().Asleep, asleep)
	}
	if err := b.store.Release(b.Context(), l); err != nil {
		b.Fatal(err)
	}
}

// numbered is a settle that writes something everywhere.
func numbered(number int64) relay.Settlement {
	return relay.Settlement{
		Number: number, Position: 10 * number, InFlightTo: 20 * number, Gaps: []relay.Range{{First: number, Last: number}},
		Published: []relay.Receipt{{Seq: 10 * number, Receipt: fmt.Sprint("receipt ", number)}},
		Rows:      []relay.Row{{Seq: 1, Status: relay.StatusFailed, Attempts: int(number), Due: true, NextIn: time.Hour}},
	}
}

func settleRepeated(b *storeBench) {
	l := b.acquire(b.request("a", shortTTL)).LeaseID
	b.settle(l, numbered(3))
	// An operator retries the delivery before the relay, which got no answer, repeats the settle.
	b.settle(l, relay.Settlement{Position: 30, InFlightTo: 60, Rows: []relay.Row{{Seq: 1, Status: relay.StatusPending, Due: true}}})
	before, rows := b.cursor(), b.Deliveries(b, b.dest)
	l.TTL = longTTL
	settled, err := b.store.Settle(b.Context(), l, numbered(3))
	if err != nil {
		b.Fatalf("the same number again: %v, want no error", err)
	}
	check(b, "what the same number again settled", settled, relay.Settled{})
	after := b.cursor()
	if !after.ExpiresAt.After(before.ExpiresAt) {
		b.Error("the same number again did not prolong the lease")
	}
	check(b, "the position", after.Position, before.Position)
	check(b, "the gaps", after.Gaps, before.Gaps)
	check(b, "the rows", b.Deliveries(b, b.dest), rows)

	b.settle(l, numbered(4))
	check(b, "the position after the next number", b.cursor().Position, 40)
}

func settleLate(b *storeBench) {
	first := b.lease()
	b.settle(first, numbered(2))
	b.settle(first, numbered(7))
	before, rows := b.cursor(), b.Deliveries(b, b.dest)
	for _, number := range []int64{1, 2, 6} {
		if _, err := b.store.Settle(b.Context(), first, numbered(number)); err == nil || errors.Is(err, relay.ErrLeaseLost) {
			b.Errorf("number %d after 7: got error %v, want one that is not a lost lease", number, err)
		}
	}
	if _, err := b.store.Recover(b.Context(), first, 10); err == nil {
		b.Error("Recover after a numbered settle: got no error")
	}
	check(b, "the cursor", b.cursor(), before)
	check(b, "the rows", b.Deliveries(b, b.dest), rows)

	if err := b.store.Release(b.Context(), first); err != nil {
		b.Fatal(err)
	}
	next := b.acquire(b.request("b", longTTL)).LeaseID
	b.recover(next, 10)
	b.settle(next, numbered(1)) // each lease counts anew
	check(b, "the position after the first settle of the next lease", b.cursor().Position, 10)
}
