package main

import (
	"math/rand/v2"
	"testing"

	"github.com/pillarbox-dev/pillarbox/relay/relaytest"
)

// Service and relay, one process, are killed at each crash point, twice, in the midst of work. The platform's rows never say
// something else than the ledger; in the end each says what its supplier holds, and each event was handled once.
func TestKilledAtEachCrashPoint(t *testing.T) {
	for dialect := range databases {
		for _, test := range []struct {
			point relaytest.Point
			most  int64
		}{
			{BeforeCommit, 40}, {AfterCommit, 40},
			{relaytest.BeforeRead, 20}, {relaytest.AfterRead, 20},
			{relaytest.BeforeDeliver, 40}, {relaytest.AfterDeliver, 40},
			{relaytest.BeforeSettle, 20}, {InSettle, 20}, {relaytest.AfterSettle, 20},
		} {
			t.Run(dialect+", "+string(test.point), func(t *testing.T) {
				t.Parallel()
				b := newBench(t, dialect)
				b.plant()
				for range 2 {
					b.start(crash{test.point, 1 + rand.N(test.most)}).killed()
					b.agree()
					b.bury()
				}
				last := b.start(crash{})
				b.more(60)
				last.stop()
				b.drain()
				b.verdict()
			})
		}
	}
}

// The relay is a process of its own. It is killed while the service works on, the service while the relay does, and both from
// outside, wherever they are.
func TestRelayBesideKilled(t *testing.T) {
	for dialect := range databases {
		t.Run(dialect, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, dialect)
			b.plant()
			service := b.start(crash{}, "--service-only")
			for _, point := range []relaytest.Point{relaytest.AfterDeliver, InSettle} {
				b.start(crash{point, 5}, "--relay-only").killed()
				b.agree()
				b.bury()
			}
			relay := b.start(crash{}, "--relay-only")
			service.kill()
			b.start(crash{BeforeCommit, 20}, "--service-only").killed()
			service = b.start(crash{}, "--service-only")
			b.more(40)
			relay.kill()
			b.agree()
			b.bury()
			service.stop()
			b.drain()
			b.verdict()
		})
	}
}

// agree checks that the platform's rows and the ledger say the same, at a moment when everything may be half done.
func (b *bench) agree() {
	b.Helper()
	diverged, err := b.records.Diverged(b.Context())
	must(b, err)
	for _, d := range diverged {
		b.Errorf("row %s says %s, the ledger %s", d.UUID, d.Own, d.Ledger)
	}
}

// drain lets a relay beside deliver the rest.
func (b *bench) drain() {
	b.Helper()
	settled := func() bool {
		held, err := b.records.Held(b.Context())
		must(b, err)
		for _, h := range held {
			if h.Status != "PUBLISHED" && h.Status != "QUARANTINED" {
				return false
			}
		}
		return len(held) > 0
	}
	if settled() {
		return
	}
	relay := b.start(crash{}, "--relay-only")
	eventually(b, "everything is delivered or dead", settled)
	relay.stop()
}
