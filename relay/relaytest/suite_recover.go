package relaytest

import (
	"fmt"
	"slices"
	"time"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// recoverTests are about relay.Ledger's Recover.
func recoverTests() []storeTest {
	return []storeTest{
		{name: "an empty ledger has nothing open", run: recoverEmpty},
		{name: "what was in flight becomes due at once", run: recoverPublishing},
		{name: "lists are complete up to the limit", run: recoverLimit},
		{name: "lanes that something blocks are listed", run: recoverLanes},
		{name: "endpoints with parked rows are listed", run: recoverEndpoints},
		{name: "numbers above the position that have a row are listed", run: recoverAbove},
		{name: "NextDue is the earliest", run: recoverNextDue},
	}
}

func recoverEmpty(b *storeBench) {
	found := b.recover(b.lease(), 10)
	if len(found.Publishing)+found.PublishingCount+len(found.Above)+len(found.Lanes)+len(found.Endpoints) != 0 || found.LanesCut {
		b.Errorf("found %+v, want nothing", found)
	}
	if found.NextDue >= 0 {
		b.Errorf("NextDue is %v, want it negative", found.NextDue)
	}
}

func recoverPublishing(b *storeBench) {
	l := b.lease()
	other := b.acquire(relay.AcquireRequest{Destination: "other", Owner: "relay", TTL: longTTL}).LeaseID
	publishing := relay.Row{Seq: 9, Status: relay.StatusPublishing}
	b.settle(other, relay.Settlement{Rows: []relay.Row{publishing}})
	b.settle(l, relay.Settlement{Position: 20, Rows: []relay.Row{
		{Seq: 1, Status: relay.StatusPublishing, Attempts: 0, Endpoint: "e", Key: "k", OpenLane: true},
		{Seq: 2, Status: relay.StatusPublishing, Attempts: 2, Endpoint: "e", Attempted: true, ErrorCode: "TIMEOUT", ErrorMessage: "m"},
		{Seq: 3, Status: relay.StatusPublished, Attempts: 1},
		{Seq: 4, Status: relay.StatusQuarantined, Attempts: 1},
		{Seq: 5, Status: relay.StatusFailed, Attempts: 1, Due: true, NextIn: time.Hour},
	}})
	untouched := b.Deliveries(b, b.dest)[2:]
	found := b.recover(l, 10)
	check(b, "in flight", found.Publishing, []int64{1, 2})
	check(b, "their count", found.PublishingCount, 2)
	if found.NextDue != 0 {
		b.Errorf("NextDue is %v, want 0", found.NextDue)
	}

	rows := b.Deliveries(b, b.dest)
	for i, want := range []DeliveryRow{
		{Seq: 1, Status: relay.StatusPending, Attempts: 0, Endpoint: "e", OpenLane: true, Key: "k", ErrorCode: relay.CodeTakeover},
		{Seq: 2, Status: relay.StatusFailed, Attempts: 2, Endpoint: "e", ErrorCode: relay.CodeTakeover},
	} {
		got := rows[i]
		b.recent("next_attempt_at", got.NextAttemptAt)
		got.NextAttemptAt, got.LastAttemptAt, got.ErrorMessage = time.Time{}, time.Time{}, ""
		check(b, "the row", got, want)
	}
	check(b, "the rows that were not in flight", rows[2:], untouched)
	check(b, "the row of another destination", b.Deliveries(b, "other")[0].Status, relay.StatusPublishing)

	again := b.recover(l, 10)
	check(b, "in flight the second time", again.PublishingCount, 0)
}

func recoverLimit(b *storeBench) {
	l := b.lease()
	var s relay.Settlement
	for seq := range int64(7) {
		s.Rows = append(s.Rows, publishing(seq+1, fmt.Sprint(seq)))
	}
	b.settle(l, s)
	found := b.recover(l, 3)
	check(b, "in flight, listed", len(found.Publishing), 3)
	check(b, "in flight, counted", found.PublishingCount, 7)
	check(b, "lanes, listed", len(found.Lanes), 3)
	check(b, "lanes are cut", found.LanesCut, true)
	for _, row := range b.Deliveries(b, b.dest) {
		check(b, "status", row.Status, relay.StatusPending)
	}
	found = b.recover(l, 7)
	check(b, "lanes, listed with room for all", len(found.Lanes), 7)
	check(b, "lanes are cut with room for all", found.LanesCut, false)
}

func recoverLanes(b *storeBench) {
	l := b.lease()
	row := func(seq int64, status relay.Status, endpoint, key string, due bool) relay.Row {
		return relay.Row{Seq: seq, Status: status, Endpoint: endpoint, Key: key, OpenLane: key != "", Due: due, NextIn: time.Hour}
	}
	b.settle(l, relay.Settlement{Rows: []relay.Row{
		row(1, relay.StatusFailed, "a", "failed", true),
		row(2, relay.StatusPending, "a", "failed", false),
		row(3, relay.StatusQuarantined, "a", "held", false),
		row(4, relay.StatusQuarantined, "a", "", false),
		row(5, relay.StatusPending, "a", "later", true),
		row(6, relay.StatusPending, "b", "parked", false),
		row(7, relay.StatusPublished, "b", "", false),
		row(8, relay.StatusDiscarded, "b", "", false),
		row(9, relay.StatusPublishing, "b", "slow", false),
		row(10, relay.StatusFailed, "b", "", true),
		row(11, relay.StatusFailed, "b", "failed", true),
	}})
	found := b.recover(l, 100)
	want := map[relay.LaneID]bool{
		{Endpoint: "a", Key: "failed"}: true, {Endpoint: "a", Key: "held"}: true, {Endpoint: "a", Key: "later"}: true,
		{Endpoint: "b", Key: "slow"}: true, {Endpoint: "b", Key: "failed"}: true,
	}
	got := map[relay.LaneID]bool{}
	for _, lane := range found.Lanes {
		got[lane] = true
	}
	check(b, "lanes", got, want)
	check(b, "lanes, each once", len(found.Lanes), len(want))
	check(b, "lanes are cut", found.LanesCut, false)
}

func recoverEndpoints(b *storeBench) {
	l := b.lease()
	b.settle(l, relay.Settlement{Rows: []relay.Row{
		{Seq: 1, Status: relay.StatusPending, Endpoint: "parked"},
		{Seq: 2, Status: relay.StatusPending, Endpoint: "parked", Key: "k", OpenLane: true},
		{Seq: 3, Status: relay.StatusPending, Endpoint: "lane", Key: "k", OpenLane: true},
		{Seq: 4, Status: relay.StatusPending, Endpoint: "later", Due: true, NextIn: time.Hour},
		{Seq: 5, Status: relay.StatusFailed, Endpoint: "failed", Due: true, NextIn: time.Hour},
		{Seq: 6, Status: relay.StatusQuarantined, Endpoint: "quarantined"},
		{Seq: 7, Status: relay.StatusPublishing, Endpoint: "slow"},
		{Seq: 8, Status: relay.StatusPending, Endpoint: ""},
	}})
	got := b.recover(l, 10).Endpoints
	slices.Sort(got)
	check(b, "endpoints", got, []string{"", "lane", "parked"})
}

func recoverAbove(b *storeBench) {
	l := b.lease()
	b.settle(l, relay.Settlement{Position: 4, Published: []relay.Receipt{{Seq: 9}, {Seq: 3}, {Seq: 5}}, Rows: []relay.Row{
		failed(4, "", past), publishing(6, ""), quarantined(12, ""), discarded(8, ""), parked(7, ""),
	}})
	check(b, "numbers above", b.recover(l, 2).Above, []int64{5, 6, 7, 8, 9, 12})
}

func recoverNextDue(b *storeBench) {
	l := b.lease()
	b.settle(l, relay.Settlement{Rows: []relay.Row{
		{Seq: 1, Status: relay.StatusFailed, Due: true, NextIn: 3 * time.Hour},
		{Seq: 2, Status: relay.StatusPending, Due: true, NextIn: 2 * time.Hour},
		{Seq: 3, Status: relay.StatusPending},
	}})
	if got := b.recover(l, 10).NextDue; got > 2*time.Hour || got < 119*time.Minute {
		b.Errorf("NextDue is %v, want 2 h", got)
	}
	b.settle(l, relay.Settlement{Rows: []relay.Row{{Seq: 4, Status: relay.StatusFailed, Due: true, NextIn: -time.Hour}}})
	check(b, "NextDue with one that is due", b.recover(l, 10).NextDue, 0)
}
