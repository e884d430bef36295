package crashtest

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/pillarbox-dev/pillarbox/ops"
	"github.com/pillarbox-dev/pillarbox/outbox/schema"
)

// Two relays share a destination that is in several shards. One of them is killed, the other takes its shards over, and the
// destination is divided anew, again and again, while producers are at work.
func TestShards(t *testing.T) {
	b := newBench(t, "postgres", "")
	b.repeats = true // a relay that takes a shard back may send again what it has sent
	load := b.load()
	for i, shards := range []int{4, 2, 5, 1, 4} {
		if i > 0 {
			b.reshard(shards)
		}
		args := processArgs{Shards: shards, Lease: 2 * shortLease}
		survivor, victim := b.relay(args), b.relay(args)
		b.shared(shards, min(shards, 2))
		if i == 3 { // one of them has nothing to do
			if !b.works(victim) {
				survivor, victim = victim, survivor
			}
		}
		b.killInFlight(victim)
		b.shared(shards, 1) // what was its is taken over
		b.moreArrive()
		if i == 4 {
			load.stop()
			b.drained()
		}
		survivor.stop()
	}
	if repeats := b.verdict(); repeats == 0 {
		t.Error("nothing was sent twice, although relays were killed with calls under way")
	}
}

// shared waits until so many relays have all the shards among them.
func (b *bench) shared(shards, relays int) {
	b.Helper()
	want := fmt.Sprintf("%d shards, %d relays", shards, relays)
	eventually(b.T, want, func() bool {
		got := b.texts(`select count(*) || ' shards, ' || count(distinct lease_owner) || ' relays' from outbox_cursor
			where lease_owner is not null and lease_expires_at > clock_timestamp()`)
		return got[0] == want
	})
}

// works tells whether a relay has a lease.
func (b *bench) works(p *process) bool {
	b.Helper()
	return len(b.texts("select lease_owner from outbox_cursor where lease_owner = '"+p.args.Name+"'")) > 0
}

// killInFlight kills a relay when the receiver has what it sent and has not answered, and lets its leases expire at once.
func (b *bench) killInFlight(p *process) {
	b.Helper()
	release := b.receiver.hold(p.args.Name)
	b.Cleanup(release)
	eventually(b.T, "calls are held up", func() bool {
		calls, _ := b.receiver.heldUp()
		return calls > 0
	})
	p.signal(syscall.SIGKILL)
	p.killed()
	release()
	if _, err := b.db.ExecContext(b.Context(), "update outbox_cursor set lease_expires_at = 'epoch' where lease_owner = $1",
		p.args.Name); err != nil {
		b.Fatal(err)
	}
}

// reshard divides the destination anew.
func (b *bench) reshard(to int) {
	b.Helper()
	o, err := ops.New(b.db, schema.Postgres, b.schema)
	if err != nil {
		b.Fatal(err)
	}
	r, err := o.Reshard(b.Context(), "inbox", to, ops.Action{By: "ann", Reason: "test"})
	if err != nil {
		b.Fatal(err)
	}
	b.Logf("%d → %d shards at %d, %d apart", r.From, r.To, r.Position, r.Apart)
}
