package crashtest

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/internal/pgtest"
	"github.com/pillarbox-dev/pillarbox/relay/relaytest"
)

// A relay is killed at each crash point, twice, while producers are at work; the third one carries all to its end.
func TestCrashPoints(t *testing.T) {
	for name := range dialects {
		t.Run(name, func(t *testing.T) {
			for _, test := range []struct {
				name  string
				point relaytest.Point
				nth   int // at most
			}{
				{"after commit, before read", relaytest.BeforeRead, 30},
				{"after read, before deliver", relaytest.AfterRead, 30},
				{"before deliver", relaytest.BeforeDeliver, 60},
				{"after deliver, before settle", relaytest.AfterDeliver, 60},
				{"before settle", relaytest.BeforeSettle, 20},
				{"after settle", relaytest.AfterSettle, 20},
				{"after acquire", relaytest.AfterAcquire, 1},
				{"after recover", relaytest.AfterRecover, 1},
			} {
				t.Run(test.name, func(t *testing.T) {
					t.Parallel()
					b := newBench(t, name, "")
					load := b.load()
					var wrecks []wreck
					for range 2 {
						p := b.relay(processArgs{Point: test.point, Nth: 1 + rand.IntN(test.nth)})
						wrecks = append(wrecks, b.bury(p))
					}
					last := b.relay(processArgs{})
					last.hear("notice lease_taken")
					time.Sleep(200 * time.Millisecond) // it takes over under load
					load.stop()
					b.drained()
					last.stop()
					if repeats := b.verdict(wrecks...); repeats == 0 && test.point == relaytest.AfterDeliver {
						t.Error("nothing was sent twice: no relay died between delivering and settling")
					}
				})
			}
		})
	}
}

// Producers are killed before their commit: what they were about to say never happened.
func TestProducerKilledBeforeCommit(t *testing.T) {
	for name := range dialects {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, name, "")
			relay := b.relay(processArgs{})
			load := b.load()
			for _, key := range []string{"killed1", "killed2", "killed3"} {
				p := start(t, processArgs{Dialect: name, Database: b.database, Key: key, Nth: 1 + rand.IntN(5)})
				p.killed()
			}
			load.stop()
			b.drained()
			relay.stop()
			b.verdict()
		})
	}
}

// A relay is stopped (SIGSTOP) with calls under way, and another takes over when its lease has run out. When it goes on it
// starts nothing more: it notices that its lease is gone, and what it would settle is refused.
func TestStoppedPastTheLease(t *testing.T) {
	for name := range dialects {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, name, "")
			load := b.load()
			sleeper := b.relay(processArgs{Lease: 3 * shortLease})
			sleeper.hear("notice lease_taken")
			time.Sleep(300 * time.Millisecond)
			release := b.stopInFlight(sleeper)
			started := sleeper.starts()
			wreck := b.wreck(sleeper.args.Name)

			next := b.relay(processArgs{})
			next.hear("notice lease_taken")
			time.Sleep(500 * time.Millisecond) // it delivers what the other one had in flight, and more
			release()
			sleeper.signal(syscall.SIGCONT)
			sleeper.hear("notice lease_lost")
			time.Sleep(500 * time.Millisecond)
			if n := sleeper.starts(); n != started {
				t.Errorf("the relay that was stopped started %d calls after another had taken over", n-started)
			}
			load.stop()
			b.drained()
			sleeper.stop() // it stands by
			next.stop()
			b.verdict(wreck)
		})
	}
}

// stopInFlight stops a relay when all that it may start is under way, so that no call is just about to start, and it holds no
// lock. What it returns lets the calls be answered. None is held up for so long that it would be made again.
func (b *bench) stopInFlight(p *process) (release func()) {
	b.Helper()
	for began := time.Now(); time.Since(began) < patience; {
		release = b.receiver.hold(p.args.Name)
		b.Cleanup(release)
		if within(time.Second, b.startsNothing) {
			time.Sleep(100 * time.Millisecond) // what came before is settled
			p.signal(syscall.SIGSTOP)
			time.Sleep(100 * time.Millisecond) // what it has printed is read
			if b.free() {
				return release
			}
			p.signal(syscall.SIGCONT)
		}
		release()
		b.moreArrive()
	}
	b.Fatalf("not within %v: the relay stands with all its calls under way", patience)
	return nil
}

// startsNothing tells whether so much is held up that the relay can start no other call.
func (b *bench) startsNothing() bool {
	calls, lanes := b.receiver.heldUp()
	return calls == concurrency || lanes == keys
}

// PostgreSQL is restarted under load, in good order and like after a crash; relay and producers find it again. A relay whose
// lease outlasts the restarts sends nothing twice: it makes its settle again. One that loses its lease takes over from itself.
func TestPostgresRestarts(t *testing.T) {
	for _, test := range []struct {
		name         string
		lease, pause time.Duration
	}{
		{"lease outlasts them", longLease, 0},
		{"lease is lost", shortLease, 3 * shortLease / 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			server := pgtest.New(t, pgtest.Options{})
			b := newBench(t, "postgres", server.Database(t))
			b.repeats = test.pause > test.lease
			load := b.load()
			relay := b.relay(processArgs{Lease: test.lease})
			for _, mode := range []pgtest.Mode{pgtest.Fast, pgtest.Immediate} {
				b.moreArrive()
				if err := server.Down(mode); err != nil {
					t.Fatal(err)
				}
				time.Sleep(test.pause)
				if err := server.Up(); err != nil {
					t.Fatal(err)
				}
			}
			b.moreArrive()
			load.stop()
			if load.failed.Load() == 0 {
				t.Error("no transaction failed: the restarts did not come under load")
			}
			if lost := relay.said("notice lease_lost"); (lost > 0) != b.repeats {
				t.Errorf("the lease was lost %d times", lost)
			}
			b.drained()
			relay.stop()
			b.verdict()
		})
	}
}

// moreArrive waits until a good many events have arrived from now on.
func (b *bench) moreArrive() {
	b.Helper()
	before := len(b.receiver.all())
	eventually(b.T, "events arrive", func() bool { return len(b.receiver.all()) > before+100 })
}

// An event that kills every relay that delivers it is found and quarantined, and the others are delivered.
func TestPoisonEvent(t *testing.T) {
	const poison = "key0-000003-0"
	for name := range dialects {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, name, "")
			s, err := newService(b.dialect, b.db)
			if err != nil {
				t.Fatal(err)
			}
			for n := range 8 {
				for k := range keys {
					tx, err := b.db.BeginTx(t.Context(), nil)
					if err != nil {
						t.Fatal(err)
					}
					if err := s.change(t.Context(), tx, fmt.Sprint("key", k), n, 0); err != nil {
						t.Fatal(err)
					}
					if err := tx.Commit(); err != nil {
						t.Fatal(err)
					}
				}
			}
			quarantined := func() []string {
				return b.texts("select event_id from outbox_status where status = 'QUARANTINED'")
			}
			var wrecks []wreck
			for {
				p := b.relay(processArgs{Poison: poison})
				eventually(t, "the poison is found, or kills again", func() bool { return p.dead() || len(quarantined()) > 0 })
				if !p.dead() {
					b.drained()
					eventually(t, "all is settled", func() bool {
						return len(b.texts("select event_id from outbox_status where status = 'PUBLISHED'")) == 8*keys-1
					})
					p.stop()
					break
				}
				if wrecks = append(wrecks, b.bury(p)); len(wrecks) > 10 {
					t.Fatalf("%s has killed %d relays and is not in quarantine yet", poison, len(wrecks))
				}
			}
			if got := quarantined(); len(got) != 1 || got[0] != poison {
				t.Errorf("quarantined: %v, want %s alone", got, poison)
			}
			codes := b.texts("select last_error_code from outbox_status where status = 'QUARANTINED'")
			if len(codes) != 1 || codes[0] != "CRASHED_RELAY" {
				t.Errorf("with the codes %v, want CRASHED_RELAY", codes)
			}
			b.inOrder(b.receiver.all())
			if b.repeatsWereInFlight(b.receiver.all(), wrecks) == 0 {
				t.Error("nothing was sent twice: the poison did not kill with events in flight")
			}
		})
	}
}
