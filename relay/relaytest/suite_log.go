package relaytest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// logTests are about relay.Log.
func logTests() []storeTest {
	return []storeTest{
		{name: "an empty log is an empty page", run: logEmpty},
		{name: "events are read as they were inserted", run: logFields},
		{name: "payloads and headers keep every byte", run: logBytes},
		{name: "rows come in order, those out of gaps first", run: logOrder},
		{name: "unwanted events are bare numbers", run: logUnwanted},
		{name: "patterns match like relay.Topics", run: logTopics},
		{name: "Limit bounds the rows above the position", run: logLimit},
		{name: "MaxBytes bounds what is wanted, but for one row", run: logMaxBytes},
		{name: "a page that is cut within the gaps says so", run: logGapsCut},
		{name: "a thousand gaps in one read", run: logManyGaps},
		{name: "numbers go up to 2^62", run: logBigNumbers},
		{name: "AvailableIn counts by the database's clock", run: logAvailableIn},
		{name: "a context that has ended ends a read", run: logCancelled},
	}
}

func logEmpty(b *storeBench) {
	page := b.read(relay.Query{Gaps: []relay.Range{{First: 1, Last: 7}}, After: 7})
	if len(page.Events)+len(page.Seqs)+len(page.GapSeqs) != 0 || page.Full || page.GapsCut {
		b.Errorf("got %+v, want nothing, neither full nor cut", page)
	}
}

func logFields(b *storeBench) {
	want := relay.Event{
		ID: "01J-ü-1", Topic: "reg.case", Key: "CASE-1 'x'", AggregateType: "case", AggregateID: "CASE-1",
		AggregateVersion: math.MaxInt64, Type: "CaseAccepted", Version: 7, SchemaRef: "reg.case.CaseAccepted.v7",
		Payload: []byte(`{"a":1}`), Headers: []byte(`{"traceparent":"00-1-2-3"}`),
	}
	want.Seq = b.insert(want)[0]
	page := b.read(relay.Query{})
	if len(page.Events) != 1 {
		b.Fatalf("read %d events, want 1", len(page.Events))
	}
	got := *page.Events[0]
	if age := page.Now.Sub(got.CreatedAt); got.CreatedAt.IsZero() || age < 0 || age > time.Minute {
		b.Errorf("created at %v and read at %v, want a moment between", got.CreatedAt, page.Now)
	}
	got.CreatedAt = time.Time{}
	check(b, "the event", got, want)
}

func logBytes(b *storeBench) {
	everyByte := make([]byte, 256)
	for i := range everyByte {
		everyByte[i] = byte(i)
	}
	events := map[string]relay.Event{
		"spacing, order, repeated names and numbers": {
			Payload: []byte("{ \"b\" : 1.0,\n\t\"a\":12345678901234567890.10, \"b\":-0e-7 }\n"),
			Headers: []byte(`{ "b": "1",  "a": "\u00fc ü" }`),
		},
		"text beyond ASCII": {Payload: []byte(`"grün 🙂 \u2028 \\ ' \" %s $1"`)},
		"a JSON null":       {Payload: []byte(`null`)},
		"a megabyte":        {Payload: []byte(`"` + strings.Repeat("0123456789abcdef", 1<<16) + `"`)},
		"a tombstone":       {Payload: nil},
		"every byte":        {Payload: everyByte, Binary: true},
		"no byte":           {Payload: []byte{}, Binary: true},
		"no header":         {Payload: []byte(`{}`), Headers: []byte(`{}`)},
	}
	for name, want := range events {
		want.ID = name
		b.insert(want)
	}
	for _, got := range b.read(relay.Query{}).Events {
		want := events[got.ID]
		if !bytes.Equal(got.Payload, want.Payload) || (got.Payload == nil) != (want.Payload == nil) {
			b.Errorf("%s: payload %.80q, want %.80q", got.ID, got.Payload, want.Payload)
		}
		if got.Binary != want.Binary {
			b.Errorf("%s: Binary is %v, want %v", got.ID, got.Binary, want.Binary)
		}
		if m, err := got.HeaderMap(); len(want.Headers) == 0 && (len(m) != 0 || err != nil) {
			b.Errorf("%s: headers %q, want none", got.ID, got.Headers)
		} else if len(want.Headers) > 0 && !bytes.Equal(got.Headers, want.Headers) {
			b.Errorf("%s: headers %q, want %q", got.ID, got.Headers, want.Headers)
		}
		delete(events, got.ID)
	}
	for name := range events {
		b.Errorf("%s: was not read", name)
	}
}

func logOrder(b *storeBench) {
	for _, seq := range []int64{9, 3, 12, 5, 6, 1, 10} {
		b.insert(relay.Event{Seq: seq})
	}
	page := b.read(relay.Query{After: 8, Gaps: []relay.Range{{First: 2, Last: 3}, {First: 5, Last: 8}}})
	check(b, "numbers out of gaps", page.GapSeqs, []int64{3, 5, 6})
	check(b, "numbers above", page.Seqs, []int64{9, 10, 12})
	check(b, "events", seqsOf(page.Events), []int64{3, 5, 6, 9, 10, 12})
	if page.Full || page.GapsCut {
		b.Errorf("full is %v and cut is %v, want neither", page.Full, page.GapsCut)
	}
}

func logUnwanted(b *storeBench) {
	for seq := range int64(8) {
		b.insert(relay.Event{Seq: seq + 1, Topic: []string{"a", "b"}[seq%2]})
	}
	page := b.read(relay.Query{After: 4, Gaps: []relay.Range{{First: 1, Last: 4}}, Topics: relay.Topics{"b"}})
	check(b, "numbers out of gaps", page.GapSeqs, []int64{1, 2, 3, 4})
	check(b, "numbers above", page.Seqs, []int64{5, 6, 7, 8})
	check(b, "events", seqsOf(page.Events), []int64{2, 4, 6, 8})
}

func logTopics(b *storeBench) {
	topics := []string{
		"case", "case.a", "case.a.b", "Case", "caseXa", "ca%e", "ca_e", `ca\e`, "ca'e", "ca?e", "[a]", "ü", " ", "a*b", "aab", "ab",
	}
	bySeq := map[int64]string{}
	for _, topic := range topics {
		bySeq[b.insert(relay.Event{Topic: topic})[0]] = topic
	}
	for _, patterns := range []relay.Topics{
		nil, {"*"}, {"**"}, {"case"}, {"case.*"}, {"case*"}, {"*.a"}, {"*.a*"}, {"c*e*b"}, {"ca%e"}, {"ca_e"}, {`ca\e`}, {`ca\*`},
		{"ca'e"}, {"ca?e"}, {"[a]"}, {"[a-z]*"}, {"ü"}, {"?"}, {" "}, {"a*b"}, {"a*ab"}, {"ab*b"}, {"nothing"}, {"%"}, {"_"}, {""},
		{"case", "Case"}, {"nothing", "*.b", "ü"},
	} {
		var want []string
		for _, topic := range topics {
			if patterns.Match(topic) {
				want = append(want, topic)
			}
		}
		var got []string
		page := b.read(relay.Query{Topics: patterns})
		for _, e := range page.Events {
			got = append(got, bySeq[e.Seq])
		}
		check(b, fmt.Sprintf("wanted by %q", patterns), got, want)
		check(b, fmt.Sprintf("numbers seen for %q", patterns), len(page.Seqs), len(topics))
	}
}

func logLimit(b *storeBench) {
	b.fill(1, 10, relay.Event{Topic: "t"})
	for _, test := range []struct {
		after int64
		limit int
		want  []int64
		full  bool
	}{
		{0, 1, []int64{1}, true},
		{0, 4, []int64{1, 2, 3, 4}, true},
		{8, 4, []int64{9, 10}, false},
		{10, 4, nil, false},
		{math.MaxInt64, 4, nil, false},
	} {
		page := b.read(relay.Query{After: test.after, Limit: test.limit, Topics: relay.Topics{"other"}})
		check(b, fmt.Sprintf("unwanted after %d, limit %d", test.after, test.limit), page.Seqs, test.want)
		page = b.read(relay.Query{After: test.after, Limit: test.limit})
		check(b, fmt.Sprintf("after %d, limit %d", test.after, test.limit), page.Seqs, test.want)
		check(b, fmt.Sprintf("full after %d, limit %d", test.after, test.limit), page.Full, test.full)
	}
	// Rows out of gaps come on top.
	page := b.read(relay.Query{After: 5, Gaps: []relay.Range{{First: 4, Last: 5}}, Limit: 3})
	check(b, "with gaps", append(page.GapSeqs, page.Seqs...), []int64{4, 5, 6, 7, 8})
}

func logMaxBytes(b *storeBench) {
	event := relay.Event{ID: "event-01", Topic: "t", Type: "x", Payload: []byte(`"` + strings.Repeat("x", 998) + `"`)}
	for i := range 10 {
		event.ID = fmt.Sprintf("event-%02d", i)
		b.insert(event)
	}
	size := b.read(relay.Query{Limit: 1}).Events[0].Size()
	for _, test := range []struct{ maxBytes, want int }{{1, 1}, {size, 1}, {3*size - 1, 2}, {3 * size, 3}, {10 * size, 10}} {
		page := b.read(relay.Query{MaxBytes: test.maxBytes})
		check(b, fmt.Sprintf("events in %d bytes", test.maxBytes), len(page.Events), test.want)
		check(b, fmt.Sprintf("numbers in %d bytes", test.maxBytes), len(page.Seqs), test.want)
		if test.want < 10 && !page.Full {
			b.Errorf("%d of 10 events were read within %d bytes, but the page is not full", test.want, test.maxBytes)
		}
	}
	// What is not wanted costs nothing.
	page := b.read(relay.Query{MaxBytes: 1, Topics: relay.Topics{"other"}})
	check(b, "unwanted events in 1 byte", len(page.Seqs), 10)
}

func logGapsCut(b *storeBench) {
	b.fill(1, 10, relay.Event{Topic: "t", Payload: []byte(`"xxxxxxxxxxxxxxxxxxxxxxxxx"`)})
	gaps := []relay.Range{{First: 1, Last: 3}, {First: 5, Last: 6}}
	size := b.read(relay.Query{Limit: 1}).Events[0].Size()
	for name, q := range map[string]relay.Query{
		"by Limit":    {After: 6, Gaps: gaps, Limit: 4},
		"by MaxBytes": {After: 6, Gaps: gaps, MaxBytes: 4*size + size/2},
	} {
		page := b.read(q)
		check(b, name+": numbers out of gaps", page.GapSeqs, []int64{1, 2, 3, 5})
		check(b, name+": numbers above", len(page.Seqs), 0)
		check(b, name+": events", seqsOf(page.Events), []int64{1, 2, 3, 5})
		if !page.GapsCut || !page.Full {
			b.Errorf("%s: GapsCut is %v and Full is %v, want both", name, page.GapsCut, page.Full)
		}
	}
	page := b.read(relay.Query{After: 6, Gaps: gaps, Limit: 6})
	check(b, "not cut: numbers out of gaps", page.GapSeqs, []int64{1, 2, 3, 5, 6})
	check(b, "not cut: numbers above", page.Seqs, []int64{7, 8, 9, 10})
	check(b, "not cut: GapsCut", page.GapsCut, false)
	// The bytes of the gaps count for the rest of the page.
	page = b.read(relay.Query{After: 6, Gaps: gaps, MaxBytes: 7 * size})
	check(b, "bytes of the whole page", seqsOf(page.Events), []int64{1, 2, 3, 5, 6, 7, 8})
	check(b, "full by bytes", page.Full, true)
}

func logManyGaps(b *storeBench) {
	var gaps []relay.Range
	var want []int64
	tx := b.Begin(b)
	for i := range int64(1000) {
		gaps = append(gaps, relay.Range{First: 10 * i, Last: 10*i + 4})
		tx.Insert(b, relay.Event{Seq: 10*i + 3}) // in the gap
		tx.Insert(b, relay.Event{Seq: 10*i + 7}) // beside it
		want = append(want, 10*i+3)
	}
	tx.Commit(b)
	page := b.read(relay.Query{After: 10_000, Gaps: gaps})
	check(b, "numbers out of a thousand gaps", page.GapSeqs, want)
	check(b, "one wide gap", len(b.read(relay.Query{After: 1 << 62, Gaps: []relay.Range{{First: 1, Last: 1 << 62}}}).GapSeqs), 2000)
}

func logBigNumbers(b *storeBench) {
	const big = int64(1) << 62
	for _, seq := range []int64{big - 2, big, big + 1} {
		b.insert(relay.Event{Seq: seq})
	}
	page := b.read(relay.Query{After: big - 1, Gaps: []relay.Range{{First: 1, Last: big - 1}}})
	check(b, "out of the gap", page.GapSeqs, []int64{big - 2})
	check(b, "above", page.Seqs, []int64{big, big + 1})
}

func logAvailableIn(b *storeBench) {
	seqs := b.insert(relay.Event{}, relay.Event{AvailableIn: time.Hour}, relay.Event{AvailableIn: -time.Hour})
	page := b.read(relay.Query{})
	check(b, "events", seqsOf(page.Events), seqs)
	if got := page.Events[0].AvailableIn; got > 0 {
		b.Errorf("an event without available_at is available in %v, want at once", got)
	}
	if got := page.Events[1].AvailableIn; got > time.Hour || got < 59*time.Minute {
		b.Errorf("an event that is available in an hour is available in %v", got)
	}
	if got := page.Events[2].AvailableIn; got > 0 {
		b.Errorf("an event that is available since an hour is available in %v, want at once", got)
	}
}

func logCancelled(b *storeBench) {
	ctx, cancel := context.WithCancel(b.Context())
	cancel()
	_, err := b.store.Read(ctx, relay.Query{Limit: 1, MaxBytes: 1})
	if !errors.Is(err, context.Canceled) {
		b.Errorf("got error %v, want one that is context.Canceled", err)
	}
}

// gapTests are about proving that a number is lost.
func gapTests() []storeTest {
	gaps := func(f StoreFeatures) bool { return f.Gaps }
	return []storeTest{
		{name: "the horizon passes a bound when nothing is open", needs: gaps, run: gapsHorizonPasses},
		{name: "the horizon does not pass an open transaction", needs: gaps, run: gapsHorizonWaits},
		{name: "a prepared transaction is open", run: gapsPrepared,
			needs: func(f StoreFeatures) bool { return f.TwoPhase }},
		{name: "a rollback loses numbers", needs: gaps, run: gapsRollback},
		{name: "every committed event is read once, by hostile producers", needs: gaps, run: gapsHostile},
	}
}

// bound takes a bound by an empty settle.
func (b *storeBench) bound(l relay.LeaseID) uint64 {
	b.Helper()
	bound := b.settle(l, relay.Settlement{}).Bound
	if bound == 0 {
		b.Fatal("the settle took no bound")
	}
	return bound
}

// passed waits until the horizon is above the bound. On a server that others use as well that may take a while.
func (b *storeBench) passed(bound uint64) bool {
	for began := time.Now(); time.Since(began) < 10*time.Second; time.Sleep(5 * time.Millisecond) {
		if b.read(relay.Query{}).Horizon > bound {
			return true
		}
	}
	return false
}

func gapsHorizonPasses(b *storeBench) {
	l := b.lease()
	first := b.bound(l)
	if !b.passed(first) {
		b.Fatal("the horizon did not pass the bound of a settle that has ended")
	}
	if second := b.bound(l); second <= first {
		b.Errorf("the second bound is %d, want more than the first, %d", second, first)
	}
}

func gapsHorizonWaits(b *storeBench) {
	l := b.lease()
	for name, end := range map[string]func(Producer){
		"commit":   func(p Producer) { p.Commit(b) },
		"rollback": func(p Producer) { p.Rollback(b) },
	} {
		tx := b.Begin(b)
		tx.Insert(b, relay.Event{})
		bound := b.bound(l)
		for range 20 {
			b.insert(relay.Event{})
			if horizon := b.read(relay.Query{}).Horizon; horizon > bound {
				b.Fatalf("%s: horizon %d is above the bound %d while a transaction with a number is open", name, horizon, bound)
			}
		}
		end(tx)
		if !b.passed(bound) {
			b.Errorf("%s: the horizon did not pass the bound after the transaction had ended", name)
		}
	}
}

func gapsPrepared(b *storeBench) {
	l := b.lease()
	tx, ok := b.Begin(b).(PreparedProducer)
	if !ok {
		b.Fatal("the backend says TwoPhase, but its transactions cannot be prepared")
	}
	seq := tx.Insert(b, relay.Event{})
	tx.Prepare(b)
	bound := b.bound(l)
	later := b.insert(relay.Event{})
	page := b.read(relay.Query{})
	check(b, "numbers while it is prepared", page.Seqs, later)
	if page.Horizon > bound {
		b.Errorf("horizon %d is above the bound %d while a prepared transaction has a number", page.Horizon, bound)
	}
	tx.Commit(b)
	page = b.read(relay.Query{After: later[0], Gaps: []relay.Range{{First: seq, Last: seq}}})
	check(b, "numbers after it was committed", page.GapSeqs, []int64{seq})
}

func gapsRollback(b *storeBench) {
	before := b.insert(relay.Event{})[0]
	tx, ok := b.Begin(b).(SavepointProducer)
	if !ok {
		b.Fatal("the backend says Gaps, but its transactions have no savepoints")
	}
	kept := tx.Insert(b, relay.Event{})
	tx.Savepoint(b)
	tx.Insert(b, relay.Event{})
	tx.RollbackTo(b)
	tx.Commit(b)
	lost := b.Begin(b)
	number := lost.Insert(b, relay.Event{})
	lost.Rollback(b)
	if lease := b.acquire(b.request("relay", longTTL)); lease.LastSeq < number {
		b.Errorf("LastSeq is %d, want at least %d, which was handed out and lost", lease.LastSeq, number)
	}
	after := b.insert(relay.Event{})[0]
	page := b.read(relay.Query{})
	check(b, "numbers", page.Seqs, []int64{before, kept, after})
	if slices.Contains(page.Seqs, number) {
		b.Errorf("number %d was rolled back but is read", number)
	}
}
