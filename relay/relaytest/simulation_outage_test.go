package relaytest_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pillarbox-dev/pillarbox/relay"
	"github.com/pillarbox-dev/pillarbox/relay/relaytest"
)

// A destination is down for a month, and the relay is killed in the middle of it. Nothing is quarantined, nothing is charged,
// next to nothing is written, and afterwards everything arrives in order.
func TestOutageOfAMonth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const events, month = 2000, 30 * 24 * time.Hour
		store := &relaytest.Memory{}
		back := time.Now().Add(month)
		dest := batches{&recorder{answer: func(context.Context, relay.Delivery) relay.Outcome {
			if time.Now().Before(back) {
				return relay.Outcome{Kind: relay.Unavailable, Code: "DOWN"}
			}
			return relay.Outcome{Kind: relay.Published}
		}}}
		var settles atomic.Int32
		var dead atomic.Bool
		counting := func(_ context.Context, at relaytest.Point) error {
			if at == relaytest.BeforeSettle {
				settles.Add(1)
			}
			return nil
		}
		killed := func(context.Context, relaytest.Point) error {
			if dead.Load() {
				return relaytest.ErrInjected
			}
			return nil
		}
		// A memory that fills at once leaves no polling, which a month of would take long even in virtual time.
		d := relay.DestinationConfig{Destination: dest, MaxInFlight: 50}
		first := startRelay(t, relay.Config{Store: relaytest.FaultyStore(store, killed, counting), Owner: "first", Lease: time.Hour}, d)
		for i := range events {
			store.Enqueue(relay.Event{ID: fmt.Sprint(i), Key: fmt.Sprint("key-", i%7)})
		}
		time.Sleep(month / 2)
		dead.Store(true)
		first()
		second := startRelay(t, relay.Config{Store: relaytest.FaultyStore(store, counting), Owner: "second", Lease: time.Hour}, d)
		time.Sleep(time.Until(back) - time.Second)
		if n := settles.Load(); n > 50 {
			t.Errorf("%d settles during the outage, want next to none", n)
		}
		probes := len(dest.ids())
		if most := int(month/(15*time.Minute)) + 100; probes > most {
			t.Errorf("%d probes, want at most %d", probes, most)
		}
		if rows := store.Deliveries("d"); len(rows) > 50 {
			t.Errorf("%d delivery rows at the end of the outage, want none but for what was in memory", len(rows))
		}
		time.Sleep(time.Hour)
		second()
		latest := map[string]int64{}
		for _, delivery := range dest.got[probes:] {
			if delivery.Seq < latest[delivery.Key] {
				t.Fatalf("%d of %s came after %d", delivery.Seq, delivery.Key, latest[delivery.Key])
			}
			latest[delivery.Key] = delivery.Seq
		}
		rows := store.Deliveries("d")
		for _, row := range rows {
			if row.Status != relay.StatusPublished || row.Attempts != 1 {
				t.Fatalf("delivery %d is %s after %d attempts, want it published after 1", row.Seq, row.Status, row.Attempts)
			}
		}
		if len(rows) != events {
			t.Errorf("%d events have a row, want %d", len(rows), events)
		}
	})
}
