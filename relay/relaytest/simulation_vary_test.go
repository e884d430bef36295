package relaytest_test

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// vary lets the processes of some destinations be configured a little differently from each other, as over a change of the
// configuration.
func (e *endPlan) vary(chance *rand.Rand) {
	e.varies = chance.IntN(3) == 0
	e.moves = chance.IntN(3) == 0
	e.noLedger = e.config.NoLedger || e.varies && e.mayLackLedger()
}

func (e *endPlan) mayLackLedger() bool { return e.config.Shards == 1 && !e.reshards }

// varied changes what may differ from process to process.
func (e *endPlan) varied(d *relay.DestinationConfig, chance *rand.Rand) {
	d.NoLedger = d.NoLedger || e.mayLackLedger() && chance.IntN(4) == 0
	if chance.IntN(2) == 0 {
		d.Retry.MaxAttempts = e.leastAttempts()
	}
	d.Concurrency = 1 + chance.IntN(8)
	d.MaxInFlight = e.batch + chance.IntN(60)
	d.MaxHeldLanes = []int{2, 100}[min(chance.IntN(6), 1)]
	d.CodeOnly = chance.IntN(2) == 0
}

// leastAttempts is the smallest of the limits that its processes have.
func (e *endPlan) leastAttempts() int {
	if e.varies {
		return e.config.Retry.MaxAttempts - 2
	}
	return e.config.Retry.MaxAttempts
}

// configured tells the oracle about a destination of a process.
func (w *world) configured(owner string, d relay.DestinationConfig) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.most[owner+" "+d.Name] = d.Retry.MaxAttempts
}

// lone knows the calls of one owner to one endpoint, and when one that was alone found it unavailable.
type lone struct {
	name     string
	underWay int
	calls    int
	alone    int       // the number of the call that began alone, and has been so; 0: none
	began    time.Time // when the last call began; another one of the same instant was started together with it
	refused  time.Time // when the last call, being alone all the time, was answered
}

// enters is told of a call, and judges whether it leaves an endpoint alone that was found unavailable just now: the first probe comes
// after a thirtieth of Probe.
func (w *world) enters(p *process, far *farSide, d *relay.Delivery, epoch int64) *lone {
	if p.isDead() || epoch == 0 {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	shard := relay.Shard{}
	if f := w.facts[d.ID]; f != nil {
		shard = w.shardOf(far.name, f)
	}
	key := fmt.Sprint(far.name, shard, epoch, p.owner, d.Endpoint)
	l := w.lone[key]
	if l == nil {
		l = &lone{name: far.name + " " + d.Endpoint}
		w.lone[key] = l
	}
	if rest := far.config.Breaker.Probe / 60 * 2; !l.refused.IsZero() && time.Since(l.began) > 0 && time.Since(l.refused) < rest {
		w.violateLocked(d.ID, "an outage is not hammered at: %s was tried %v after it was unavailable", l.name, time.Since(l.refused))
	}
	l.refused = time.Time{}
	l.calls++
	if l.alone = 0; l.underWay == 0 && time.Since(l.began) > 0 {
		l.alone = l.calls
	}
	l.began = time.Now()
	l.underWay++
	return l
}

func (w *world) leaves(l *lone, outcomes []relay.Outcome) {
	if l == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	l.underWay--
	if l.alone == l.calls && l.underWay == 0 && len(outcomes) == 1 && outcomes[0].Kind == relay.Unavailable {
		l.refused = time.Now()
		w.reached["unavailable"]++
	}
}
