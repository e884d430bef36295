package relaytest_test

import (
	"math/rand/v2"
	"time"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// divide gives some destinations several shards, and lets the operator change the number in some of them.
func (e *endPlan) divide(chance *rand.Rand) {
	e.config.Shards = 1
	if chance.IntN(4) > 0 {
		return
	}
	e.config.NoLedger = false
	e.config.Shards = 2 + chance.IntN(2)
	if e.reshards = chance.IntN(2) == 0; e.reshards && chance.IntN(3) == 0 {
		e.config.Shards = 1
	}
}

// resharder is what an operator changes the number of shards with.
type resharder interface {
	Reshard(destination string, shards int) error
}

// halt is a time without relays: all of them are stopped, and begin again when it is over.
type halt struct {
	begun  chan struct{} // closed: those that run have to end, and none starts
	parked chan struct{} // each slot says once that it has none
	over   chan struct{} // closed: they may start again
}

func newHalt() *halt {
	return &halt{make(chan struct{}), make(chan struct{}), make(chan struct{})}
}

func (w *world) nextHalt() *halt {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.halt
}

// admitted returns when a relay may start, with the halt that it has to end for.
func (w *world) admitted() *halt {
	for {
		h := w.nextHalt()
		select {
		case <-h.begun:
		default:
			return h
		}
		select {
		case h.parked <- struct{}{}:
			<-h.over
		case <-h.over: // it was given up
		}
	}
}

// endFor ends the process because a halt has begun, one way or the other.
func (p *process) endFor(chance *rand.Rand) {
	if chance.IntN(3) > 0 || p.w.isCalm() {
		p.stop()
		return
	}
	p.kill("operator")
	<-p.exited
}

// reshard stops all relays, changes the number of shards of a destination, and lets the relays start again.
func (w *world) reshard(destination string, chance *rand.Rand, stop chan struct{}) {
	h := w.nextHalt()
	close(h.begun)
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.halt = newHalt()
		close(h.over)
	}()
	for range w.plan.relays {
		select {
		case <-h.parked:
		case <-stop:
			return
		}
	}
	to := 1 + (w.shardsOf(destination)+chance.IntN(2))%3 // 1 to 3, but not what it is
	for range 100 {                                      // the lease of one that was killed has to end first
		if w.resharded(destination, to) {
			return
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// resharded tries to change the number of shards.
func (w *world) resharded(destination string, to int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.store.Cursors(destination)
	if len(before) == 0 {
		w.shards[destination] = to // it is new: nobody has got its lease yet
		return true
	}
	if err := w.ops.Reshard(destination, to); err != nil {
		w.reached["reshard refused"]++
		return false
	}
	w.shards[destination] = to
	w.reached["resharded"]++
	w.noteLocked("", "%s is resharded from %d to %d", destination, len(before), to)
	apart := false
	for n, c := range before {
		w.noteLocked("", "shard %d stood at %d with gaps %v, in flight to %d, owner %q",
			n, c.Position, c.Gaps, c.InFlightTo, c.Owner)
		apart = apart || c.Position != before[0].Position
		if c.Owner != "" {
			w.reached["resharded after a crash"]++
			w.lose(destination, c.Owner, relay.Shard{Number: n, Of: len(before)})
		}
	}
	if apart {
		w.reached["resharded with shards apart"]++
	}
	return true
}

// shardsOf returns how many shards the relays are configured for.
func (w *world) shardsOf(destination string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.shards[destination]
}

// shardOf returns the shard that an event belongs to.
func (w *world) shardOf(destination string, f *fact) relay.Shard {
	n := w.shards[destination]
	return relay.Shard{Number: relay.ShardOf(f.key, f.seq, n), Of: n}
}

// lookWhoShares is told of a lease that was taken.
func (w *world) lookWhoShares(r relay.AcquireRequest) {
	for n, c := range w.store.Cursors(r.Destination) {
		if n != r.Shard.Number && c.Owner != "" && c.Owner != r.Owner && c.ExpiresAt.After(time.Now()) {
			w.reach("shared by several relays")
		}
	}
}
