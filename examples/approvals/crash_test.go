package main

import (
	"math/rand/v2"
	"testing"

	"github.com/pillarbox-dev/pillarbox/examples/approvals/audit"
	"github.com/pillarbox-dev/pillarbox/relay/relaytest"
)

// Service and relay, one process, are killed at each crash point, twice, in the midst of work, while the audit store loses
// answers. In the end every change is told once, and nothing is told that did not happen.
func TestKilledAtEachCrashPoint(t *testing.T) {
	for dialect := range databases {
		for _, test := range []struct {
			point relaytest.Point
			most  int64
		}{
			{BeforeCommit, 30}, {AfterCommit, 60},
			{relaytest.BeforeRead, 20}, {relaytest.AfterRead, 20},
			{relaytest.BeforeDeliver, 30}, {relaytest.AfterDeliver, 30},
			{relaytest.BeforeSettle, 20}, {relaytest.AfterSettle, 20},
		} {
			t.Run(dialect+", "+string(test.point), func(t *testing.T) {
				t.Parallel()
				b := newBench(t, dialect, nil)
				b.audit.Tell(audit.Control{LoseEvery: new(10)})
				for range 2 {
					b.start(serviceRole, b.settings, crash{test.point, 1 + rand.N(test.most)}).killed()
					b.bury()
				}
				last := b.start(serviceRole, b.settings, crash{})
				b.more(40)
				last.stop()
				b.drain()
				b.verdict()
			})
		}
	}
}

// The relay is a process of its own. It is killed while the service works on, and the service while the relay does.
func TestRelayBesideKilled(t *testing.T) {
	for dialect := range databases {
		t.Run(dialect, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, dialect, nil)
			b.settings.Relay = false
			service := b.start(serviceRole, b.settings, crash{})
			for _, point := range []relaytest.Point{relaytest.AfterDeliver, relaytest.BeforeSettle} {
				b.start(relayRole, b.settings, crash{point, 5}).killed()
				b.bury()
			}
			relay := b.start(relayRole, b.settings, crash{})
			service.kill()
			b.start(serviceRole, b.settings, crash{BeforeCommit, 10}).killed()
			service = b.start(serviceRole, b.settings, crash{})
			b.more(30)
			relay.kill()
			b.bury()
			service.stop()
			b.drain()
			b.verdict()
		})
	}
}

// drain lets a relay beside deliver the rest.
func (b *bench) drain() {
	b.Helper()
	relay := b.start(relayRole, b.settings, crash{})
	b.drained()
	relay.stop()
}
