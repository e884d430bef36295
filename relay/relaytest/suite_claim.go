package relaytest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// claimTests are about relay.Ledger's Claim.
func claimTests() []storeTest {
	return []storeTest{
		{name: "an empty ledger has nothing to claim", run: claimEmpty},
		{name: "what is eligible", run: claimEligible},
		{name: "a claimed row is the owner's", run: claimMarks},
		{name: "a claim returns the event and the row as it was", run: claimReturns},
		{name: "a discarded row lets its lane go on", run: claimDiscarded},
		{name: "a row whose event is gone is quarantined, and its lane goes on", run: claimMissing},
		{name: "Charge counts the attempt before it is made", run: claimCharge},
		{name: "Limit cuts in order", run: claimLimit},
		{name: "MaxBytes cuts, but takes one", run: claimMaxBytes},
		{name: "nothing overtakes in a lane, however small the claims", run: claimSmall},
		{name: "NextDue is the next row that a claim by Due would take", run: claimNextDue},
		{name: "other destinations are not touched", run: claimApart},
	}
}

// Rows of a lane of endpoint "e"; without a key they are in no lane. in is the time until it is due.
func failed(seq int64, key string, in time.Duration) relay.Row {
	return relay.Row{Seq: seq, Status: relay.StatusFailed, Attempts: 1, Attempted: true, Endpoint: "e",
		Key: key, OpenLane: key != "", Due: true, NextIn: in, ErrorCode: "TIMEOUT"}
}

func pending(seq int64, key string, in time.Duration) relay.Row {
	return relay.Row{Seq: seq, Status: relay.StatusPending, Endpoint: "e", Key: key, OpenLane: key != "", Due: true, NextIn: in}
}

func parked(seq int64, key string) relay.Row {
	return relay.Row{Seq: seq, Status: relay.StatusPending, Endpoint: "e", Key: key, OpenLane: key != ""}
}

func publishing(seq int64, key string) relay.Row {
	return relay.Row{Seq: seq, Status: relay.StatusPublishing, Endpoint: "e", Key: key, OpenLane: key != ""}
}

func quarantined(seq int64, key string) relay.Row {
	return relay.Row{Seq: seq, Status: relay.StatusQuarantined, Attempts: 1, Endpoint: "e", Key: key, OpenLane: key != "",
		ErrorCode: "HTTP_422"}
}

func discarded(seq int64, key string) relay.Row {
	return relay.Row{Seq: seq, Status: relay.StatusDiscarded, Endpoint: "e", Key: key, OpenLane: key != "", Due: true}
}

func published(seq int64) relay.Row {
	return relay.Row{Seq: seq, Status: relay.StatusPublished, Attempts: 1}
}

func at(r relay.Row, endpoint string) relay.Row {
	r.Endpoint = endpoint
	return r
}

// Times until a row is due.
const (
	past  = -time.Minute
	later = time.Hour
)

func byDue() relay.Claim { return relay.Claim{Due: true} }

func byLane(endpoint, key string) relay.Claim {
	return relay.Claim{Lane: &relay.LaneID{Endpoint: endpoint, Key: key}}
}

func byEndpoint(endpoint string, after int64) relay.Claim {
	return relay.Claim{Endpoint: &endpoint, After: after}
}

// ledger fills the log, from 1 on, with as many events as the rows need, and writes the rows.
func (b *storeBench) ledger(rows ...relay.Row) relay.LeaseID {
	b.Helper()
	l := b.lease()
	last := int64(0)
	for _, row := range rows {
		last = max(last, row.Seq)
	}
	there := int64(len(b.read(relay.Query{}).Seqs))
	b.fill(there+1, last, relay.Event{Topic: "t", Payload: []byte(`"payload"`)})
	b.settle(l, relay.Settlement{Position: last, Rows: rows})
	return l
}

func claimedSeqs(c relay.Claimed) []int64 {
	var seqs []int64
	for _, d := range c.Deliveries {
		seqs = append(seqs, d.Event.Seq)
	}
	return seqs
}

func claimEmpty(b *storeBench) {
	l := b.lease()
	for _, c := range []relay.Claim{byDue(), byLane("", ""), byLane("e", "k"), byEndpoint("", 0), byEndpoint("e", 0)} {
		got := b.claim(l, c)
		if len(got.Deliveries) != 0 || got.More || got.Blocked || got.NextDue >= 0 {
			b.Errorf("%s: got %+v, want nothing and no next one", describe(c), got)
		}
	}
}

func describe(c relay.Claim) string {
	switch {
	case c.Lane != nil:
		return fmt.Sprintf("by lane %q %q", c.Lane.Endpoint, c.Lane.Key)
	case c.Endpoint != nil:
		return fmt.Sprintf("by endpoint %q after %d", *c.Endpoint, c.After)
	}
	return "by due"
}

func claimEligible(b *storeBench) {
	type want struct {
		claim   relay.Claim
		seqs    []int64
		blocked bool
	}
	for _, test := range []struct {
		name string
		rows []relay.Row
		want []want
	}{
		{"due rows, the longest overdue first", []relay.Row{
			failed(1, "", past), failed(2, "", 2*past), pending(3, "", past), pending(4, "", later),
			parked(5, ""), published(6), quarantined(7, ""), publishing(8, ""),
		}, []want{
			{byDue(), []int64{2, 1, 3}, false},
			{byEndpoint("e", 0), []int64{5}, false},
			{byLane("e", ""), nil, false},
		}},
		{"a lane behind a head that waits", []relay.Row{
			failed(1, "k", later), parked(2, "k"), parked(3, "k"), pending(4, "k", past),
		}, []want{
			{byDue(), nil, false}, {byEndpoint("e", 0), nil, false}, {byLane("e", "k"), nil, true},
		}},
		{"a lane behind a head in flight", []relay.Row{publishing(1, "k"), parked(2, "k"), failed(3, "k", past)}, []want{
			{byDue(), nil, false}, {byEndpoint("e", 0), nil, false}, {byLane("e", "k"), nil, true},
		}},
		{"a held lane", []relay.Row{quarantined(1, "k"), parked(2, "k"), failed(3, "k", past)}, []want{
			{byDue(), nil, false}, {byEndpoint("e", 0), nil, false}, {byLane("e", "k"), nil, true},
		}},
		{"a lane behind a skipped quarantine", []relay.Row{
			{Seq: 1, Status: relay.StatusQuarantined, Endpoint: "e"}, parked(2, "k"), parked(3, "k")}, []want{
			{byDue(), nil, false}, {byLane("e", "k"), []int64{2, 3}, false},
		}},
		{"a lane whose head is due", []relay.Row{failed(1, "k", past), parked(2, "k"), parked(3, "k")}, []want{
			{byEndpoint("e", 0), nil, false}, {byDue(), []int64{1}, false}, {byLane("e", "k"), nil, true},
		}},
		{"a lane whose head is due, by lane", []relay.Row{
			failed(1, "k", past), parked(2, "k"), failed(3, "k", past), pending(4, "k", later), parked(5, "k"),
		}, []want{
			{byLane("e", "k"), []int64{1, 2, 3}, true},
		}},
		{"in a lane, due behind due later", []relay.Row{pending(1, "k", past), pending(2, "k", 3*past), pending(3, "k", past)}, []want{
			{byDue(), []int64{1}, false}, {byLane("e", "k"), nil, true},
		}},
		{"in a lane, all due in order", []relay.Row{
			failed(1, "k", 3*past), failed(2, "k", past), pending(3, "k", past), failed(4, "", 2*past),
		}, []want{
			{byDue(), []int64{1, 4, 2, 3}, false},
		}},
		{"in a lane, due behind parked", []relay.Row{parked(1, "k"), pending(2, "k", past)}, []want{
			{byDue(), nil, false}, {byEndpoint("e", 0), []int64{1}, false}, {byDue(), nil, false},
		}},
		{"parked rows of an endpoint, above a number", []relay.Row{
			parked(1, ""), parked(2, "k"), parked(3, "k"), parked(4, "other"), parked(5, ""),
		}, []want{
			{byEndpoint("e", 2), []int64{4, 5}, false}, // 3 waits for 2, which is not asked for
			{byEndpoint("e", 5), nil, false},
			{byEndpoint("e", 0), []int64{1, 2, 3}, false},
		}},
		{"lanes and endpoints are apart", []relay.Row{
			failed(1, "k", later), at(failed(2, "k", past), "f"), at(parked(3, "k"), "f"), parked(4, "K"), parked(5, ""),
			at(parked(6, "k"), ""),
		}, []want{
			{byEndpoint("e", 0), []int64{4, 5}, false},
			{byLane("f", "k"), []int64{2, 3}, false},
			{byLane("", "k"), []int64{6}, false},
		}},
		{"settled rows stand in nobody's way", []relay.Row{
			{Seq: 1, Status: relay.StatusPublished, Endpoint: "e", Key: "k", OpenLane: true},
			{Seq: 2, Status: relay.StatusDiscarded, Endpoint: "e", Key: "k", OpenLane: true}, parked(3, "k"),
		}, []want{
			{byLane("e", "k"), []int64{3}, false},
		}},
	} {
		b.Run(test.name, func(t *testing.T) {
			b := b.in(t, test.name)
			l := b.ledger(test.rows...)
			for _, want := range test.want {
				got := b.claim(l, want.claim)
				check(b, describe(want.claim), claimedSeqs(got), want.seqs)
				check(b, describe(want.claim)+": blocked", got.Blocked, want.blocked)
				check(b, describe(want.claim)+": more", got.More, false)
			}
		})
	}
}

func claimMarks(b *storeBench) {
	l := b.ledger(failed(1, "k", past), parked(2, ""), parked(3, ""))
	b.claim(l, byDue())
	b.claim(l, byEndpoint("e", 2))
	for _, seq := range []int64{1, 3} {
		row := b.row(seq)
		if row.Status != relay.StatusPublishing || row.LockedBy != "relay" || !row.NextAttemptAt.IsZero() || row.Endpoint != "e" {
			b.Errorf("claimed row %+v, want it PUBLISHING, locked by relay, without next_attempt_at, at its endpoint", row)
		}
		b.recent("locked_at", row.LockedAt)
	}
	check(b, "attempts of the failed one", b.row(1).Attempts, 1)
	check(b, "lane of the failed one", b.row(1).Key, "k")
	check(b, "status of the one that was not claimed", b.row(2).Status, relay.StatusPending)
	check(b, "claimed again", len(b.claim(l, byDue()).Deliveries), 0)
}

func claimReturns(b *storeBench) {
	l := b.lease()
	want := relay.Event{ID: "id", Topic: "topic", Key: "k", AggregateType: "a", AggregateID: "b", AggregateVersion: 9,
		Type: "type", Version: 3, SchemaRef: "s", Payload: []byte(`{ "n":1.0}`), Headers: []byte(`{"h":"v"}`)}
	want.Seq = b.insert(want)[0]
	takenOver := failed(want.Seq, "k", past)
	takenOver.Attempts, takenOver.ErrorCode = 4, relay.CodeTakeover
	b.settle(l, relay.Settlement{Position: want.Seq, Rows: []relay.Row{takenOver}})
	claimed := b.claim(l, byDue())
	if len(claimed.Deliveries) != 1 {
		b.Fatalf("claimed %d deliveries, want 1", len(claimed.Deliveries))
	}
	got := claimed.Deliveries[0]
	event := *got.Event
	b.recent("created_at", event.CreatedAt)
	event.CreatedAt = time.Time{}
	check(b, "the event", event, want)
	got.Event = nil
	check(b, "the row as it was", got,
		relay.Open{Endpoint: "e", Attempts: 4, Status: relay.StatusFailed, LastErrorCode: relay.CodeTakeover})
}

func claimDiscarded(b *storeBench) {
	l := b.ledger(discarded(1, "k"), parked(2, "k"), quarantined(3, "k"), parked(4, "k"))
	claimed := b.claim(l, byDue())
	check(b, "claimed", claimedSeqs(claimed), []int64{1})
	check(b, "the status before", claimed.Deliveries[0].Status, relay.StatusDiscarded)
	row := b.row(1)
	if row.Status != relay.StatusDiscarded || !row.NextAttemptAt.IsZero() || row.OpenLane || row.LockedBy != "" {
		b.Errorf("row %+v, want it still DISCARDED, out of its lane, neither due nor locked", row)
	}
	check(b, "claimed again", len(b.claim(l, byDue()).Deliveries), 0)
	claimed = b.claim(l, byLane("e", "k"))
	check(b, "claimed by lane", claimedSeqs(claimed), []int64{2})
	check(b, "the lane is blocked by the next quarantine", claimed.Blocked, true)
}

func claimMissing(b *storeBench) {
	l := b.lease()
	b.settle(l, relay.Settlement{Position: 5, Rows: []relay.Row{failed(1, "k", past), failed(2, "k", later), failed(3, "", past)}})
	b.settle(l, relay.Settlement{Position: 5, Rows: []relay.Row{discarded(4, "d")}})
	claimed := b.claim(l, byDue())
	slices.SortFunc(claimed.Deliveries, func(x, y relay.Open) int { return cmp.Compare(x.Event.Seq, y.Event.Seq) })
	check(b, "claimed", claimedSeqs(claimed), []int64{1, 3, 4})
	check(b, "what an operator had discarded", b.row(4).Status, relay.StatusDiscarded)
	for _, d := range claimed.Deliveries[:min(2, len(claimed.Deliveries))] {
		check(b, "the status before", d.Status, relay.StatusDiscarded)
		check(b, "the endpoint", d.Endpoint, "e")
		row := b.row(d.Event.Seq)
		row.LastAttemptAt, row.ErrorMessage = time.Time{}, ""
		check(b, "the row", row, DeliveryRow{Seq: row.Seq, Status: relay.StatusQuarantined, Attempts: 1, Endpoint: "e",
			ErrorCode: relay.CodeEventMissing})
	}
	if len(claimed.Deliveries) > 0 {
		check(b, "the key, for its lane", claimed.Deliveries[0].Event.Key, "k")
	}
	check(b, "claimed again", len(b.claim(l, byDue()).Deliveries), 0)
}

func claimCharge(b *storeBench) {
	l := b.ledger(failed(1, "", past), parked(2, ""), parked(3, ""), discarded(4, "k"))
	charged := b.claim(l, relay.Claim{Due: true, Charge: true})
	check(b, "charged", claimedSeqs(charged), []int64{1, 4})
	check(b, "attempts before", charged.Deliveries[0].Attempts, 1)
	check(b, "attempts on record", b.row(1).Attempts, 2)
	check(b, "attempts of what was discarded", b.row(4).Attempts, 0)
	endpoint := "e"
	b.claim(l, relay.Claim{Endpoint: &endpoint, Charge: true, Limit: 1})
	b.claim(l, byEndpoint("e", 0))
	check(b, "attempts on record, charged", b.row(2).Attempts, 1)
	check(b, "attempts on record, not charged", b.row(3).Attempts, 0)
}

func claimLimit(b *storeBench) {
	var rows []relay.Row
	for seq := range int64(7) {
		rows = append(rows, parked(seq+1, ""), failed(seq+8, "", -time.Duration(seq+1)*time.Minute), parked(seq+15, "k"))
	}
	l := b.ledger(rows...)
	for _, test := range []struct {
		claim relay.Claim
		want  [][]int64
	}{
		{byEndpoint("e", 1), [][]int64{{2, 3, 4}, {5, 6, 7}, {15, 16, 17}}},
		{byDue(), [][]int64{{14, 13, 12}, {11, 10, 9}, {8}}},
	} {
		for _, want := range test.want {
			test.claim.Limit = 3
			got := b.claim(l, test.claim)
			check(b, describe(test.claim), claimedSeqs(got), want)
			check(b, describe(test.claim)+": more", got.More, len(want) == 3)
		}
	}
	lane := byLane("e", "k")
	lane.Limit = 3
	if got := b.claim(l, lane); len(got.Deliveries) != 0 || !got.Blocked {
		b.Errorf("by lane behind what is in flight: got %+v, want nothing, and blocked", got)
	}
}

func claimMaxBytes(b *storeBench) {
	l := b.lease()
	payload := []byte(`"` + strings.Repeat("x", 1000) + `"`)
	var rows []relay.Row
	for seq := int64(1); seq <= 5; seq++ {
		b.insert(relay.Event{Seq: seq, ID: fmt.Sprint("event-", seq), Topic: "t", Payload: payload})
		rows = append(rows, parked(seq, "k"))
	}
	b.settle(l, relay.Settlement{Position: 5, Rows: rows})
	first := b.claim(l, relay.Claim{Lane: &relay.LaneID{Endpoint: "e", Key: "k"}, MaxBytes: 1})
	check(b, "in 1 byte", claimedSeqs(first), []int64{1})
	check(b, "in 1 byte: more", first.More, true)
	b.settle(l, relay.Settlement{Position: 5, Rows: []relay.Row{published(1)}})
	size := first.Deliveries[0].Event.Size()
	second := b.claim(l, relay.Claim{Lane: &relay.LaneID{Endpoint: "e", Key: "k"}, MaxBytes: 3*size + size/2})
	check(b, "in three and a half", claimedSeqs(second), []int64{2, 3, 4})
	check(b, "in three and a half: more", second.More, true)
	check(b, "the status of what was left", b.row(5).Status, relay.StatusPending)
}

// claimSmall goes through lanes by claims of one row: each event must come after those before it in its lane.
func claimSmall(b *storeBench) {
	var rows []relay.Row
	for seq := int64(1); seq <= 12; seq++ {
		key := fmt.Sprint("lane-", seq%2)
		switch seq % 3 {
		case 0:
			rows = append(rows, failed(seq, key, -time.Duration(seq)*time.Minute)) // the later, the longer overdue
		case 1:
			rows = append(rows, parked(seq, key))
		case 2:
			rows = append(rows, pending(seq, key, past))
		}
	}
	l := b.ledger(rows...)
	latest := map[int64]int64{} // of each of the two lanes
	taken := 0
	for idle := 0; idle < 2; idle++ {
		for _, c := range []relay.Claim{byEndpoint("e", 0), byDue(), byLane("e", "lane-1"), byLane("e", "lane-0")} {
			c.Limit = 1
			for _, d := range b.claim(l, c).Deliveries {
				seq := d.Event.Seq
				if seq < latest[seq%2] {
					b.Errorf("%s: %d was claimed after %d", describe(c), seq, latest[seq%2])
				}
				b.settle(l, relay.Settlement{Position: 12, Rows: []relay.Row{published(seq)}})
				latest[seq%2] = seq
				taken++
				idle = 0
			}
		}
	}
	check(b, "rows that were claimed", taken, 12)
}

func claimNextDue(b *storeBench) {
	l := b.ledger(failed(1, "", past), failed(2, "k", 2*time.Hour), pending(3, "k", past), pending(4, "", 3*time.Hour),
		parked(5, ""))
	near := func(what string, got, want time.Duration) {
		b.Helper()
		if (got - want).Abs() > time.Minute {
			b.Errorf("NextDue %s is %v, want %v", what, got, want)
		}
	}
	near("with one that is due", b.claim(l, byEndpoint("e", 0)).NextDue, 0)
	near("after the claim of it, with one that is due but blocked", b.claim(l, byDue()).NextDue, 2*time.Hour)
	near("of a claim that finds nothing", b.claim(l, byDue()).NextDue, 2*time.Hour)
	b.settle(l, relay.Settlement{Position: 5, Rows: []relay.Row{published(2), published(3), published(4)}})
	if got := b.claim(l, byDue()).NextDue; got >= 0 {
		b.Errorf("NextDue with nothing that will be due is %v, want it negative", got)
	}
}

func claimApart(b *storeBench) {
	l := b.ledger(failed(1, "k", past), parked(2, "k"), parked(3, ""))
	other := b.acquire(relay.AcquireRequest{Destination: "other", Owner: "relay", TTL: longTTL}).LeaseID
	b.settle(other, relay.Settlement{Rows: []relay.Row{publishing(1, "k"), failed(2, "k", past), parked(3, "")}})
	before := b.Deliveries(b, "other")
	check(b, "by due", claimedSeqs(b.claim(l, byDue())), []int64{1})
	check(b, "by endpoint", claimedSeqs(b.claim(l, byEndpoint("e", 2))), []int64{3})
	after := b.Deliveries(b, "other")
	if !slices.Equal(before, after) {
		b.Errorf("rows of another destination:\n got %+v\nwant %+v", after, before)
	}
}
