package sqlite_test

import (
	"fmt"
	"testing"

	"github.com/pillarbox-dev/pillarbox/relay"
	"github.com/pillarbox-dev/pillarbox/store/sqlite"
)

// Reading pages of 1,000 events of 420 bytes, with and without patterns.
func BenchmarkRead(b *testing.B) {
	const events = 100_000
	d := newDatabase(b, sqlite.Config{})
	insert(b, d.db, "", events)
	for _, topics := range []relay.Topics{nil, {"orders"}, {"nothing", "else", "ord*"}, {"nothing"}} {
		b.Run(fmt.Sprintf("topics=%q", []string(topics)), func(b *testing.B) {
			after, read := int64(0), 0
			for b.Loop() {
				page := d.read(b, relay.Query{After: after, Limit: 1000, Topics: topics})
				read += len(page.Seqs)
				if after += 1000; after == events {
					after = 0
				}
			}
			b.ReportMetric(float64(read)/b.Elapsed().Seconds(), "events/s")
		})
	}
	b.Run("empty", func(b *testing.B) { // an idle relay's poll
		for b.Loop() {
			d.read(b, relay.Query{After: events, Limit: 1000})
		}
	})
}

// Settling 1,000 outcomes at a time: all published at once, or all failed.
func BenchmarkSettle(b *testing.B) {
	const rows = 1000
	for _, synchronous := range []sqlite.Synchronous{sqlite.Full, sqlite.Normal} {
		for _, name := range []string{"published", "failed"} {
			b.Run(fmt.Sprintf("%s/%s", synchronous, name), func(b *testing.B) {
				d := newDatabase(b, sqlite.Config{Synchronous: synchronous})
				l := d.lease(b, "dest")
				position := int64(0)
				for b.Loop() {
					s := relay.Settlement{Position: position + rows, InFlightTo: position + rows}
					for seq := position + 1; seq <= position+rows; seq++ {
						if name == "published" {
							s.Published = append(s.Published, relay.Receipt{Seq: seq, Receipt: "200"})
						} else {
							s.Rows = append(s.Rows, relay.Row{Seq: seq, Status: relay.StatusFailed, Attempts: 1, Attempted: true, Endpoint: "e",
								Key: fmt.Sprint(seq), OpenLane: true, Due: true, ErrorCode: "HTTP_503", ErrorMessage: "Service Unavailable"})
						}
					}
					d.settle(b, l, s)
					position += rows
				}
				b.ReportMetric(float64(position)/b.Elapsed().Seconds(), "rows/s")
			})
		}
	}
}

// Claiming 1,000 parked deliveries at a time out of 100,000: each a lane of its own, or all of them one lane.
func BenchmarkClaim(b *testing.B) {
	const rows = 100_000
	for _, lanes := range []int{rows, 1} {
		b.Run(fmt.Sprintf("lanes=%d", lanes), func(b *testing.B) {
			d := newDatabase(b, sqlite.Config{})
			insert(b, d.db, "", rows)
			l := d.lease(b, "dest")
			s := relay.Settlement{Position: rows}
			for seq := range int64(rows) {
				key := fmt.Sprint(seq % int64(lanes))
				s.Rows = append(s.Rows, relay.Row{Seq: seq + 1, Status: relay.StatusPending, Key: key, OpenLane: true})
			}
			d.settle(b, l, s)
			claimed, after := 0, int64(0)
			c := relay.Claim{Endpoint: new(string), Limit: 1000, MaxBytes: 1 << 30}
			if lanes == 1 {
				c = relay.Claim{Lane: &relay.LaneID{Key: "0"}, Limit: 1000, MaxBytes: 1 << 30}
			}
			for b.Loop() {
				b.StopTimer()
				if after == rows {
					after = 0
					d.settle(b, l, s)
				}
				b.StartTimer()
				c.After = after
				got, err := d.store.Claim(b.Context(), l, c)
				if err != nil || len(got.Deliveries) != 1000 {
					b.Fatalf("claimed %d, %v, want 1000", len(got.Deliveries), err)
				}
				claimed += len(got.Deliveries)
				after = got.Deliveries[999].Event.Seq
				if lanes == 1 { // what was claimed is published, or the lane would not go on
					b.StopTimer()
					done := relay.Settlement{Position: rows}
					for _, open := range got.Deliveries {
						done.Rows = append(done.Rows, relay.Row{Seq: open.Event.Seq, Status: relay.StatusPublished, Attempts: 1})
					}
					d.settle(b, l, done)
					b.StartTimer()
				}
			}
			b.ReportMetric(float64(claimed)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}
