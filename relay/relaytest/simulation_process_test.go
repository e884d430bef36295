package relaytest_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/pillarbox-dev/pillarbox/relay"
	"github.com/pillarbox-dev/pillarbox/relay/relaytest"
)

// process is a process with a relay in it. A dead one reaches neither store nor destination any more, and nobody hears from it.
type process struct {
	w      *world
	owner  string
	cancel context.CancelFunc
	exited chan struct{}
	died   chan struct{}

	mu    sync.Mutex
	dead  bool
	cut   bool          // it cannot reach the store
	thaws chan struct{} // not nil while it is frozen; closed when it goes on
}

// supervise keeps a relay running in its slot: it starts it, lets it live for a while, and ends it one way or the other.
func (w *world) supervise(slot int, stop chan struct{}) {
	chance := chanceOf(w.seed, fmt.Sprint("slot ", slot))
	for n := 0; ; n++ {
		h := w.admitted()
		p := w.start(fmt.Sprintf("relay-%d-%d", slot, n), chance)
		if w.live(p, chance, h, stop) {
			return
		}
		time.Sleep(time.Duration(chance.IntN(500)) * time.Millisecond)
	}
}

// live waits for the end of a process and tells whether it was the last one of its slot.
func (w *world) live(p *process, chance *rand.Rand, h *halt, stop chan struct{}) (last bool) {
	lifetime := time.After(time.Duration(500+chance.IntN(8000)) * time.Millisecond)
	how := chance.IntN(6)
	for {
		select {
		case <-stop:
			p.stop()
			return true
		case <-p.died:
			<-p.exited
			return false
		case <-h.begun:
			p.endFor(chance)
			return false
		case <-lifetime:
		}
		lifetime = nil
		switch {
		case w.isCalm():
		case how < 2:
			w.reach("stopped")
			p.stop()
			return false
		case how < 4:
			w.reach("killed")
			p.kill("operator")
		default:
			d := time.Duration(float64(w.plan.lease) * (0.5 + 1.5*chance.Float64()))
			if how == 4 {
				p.freeze(d)
			} else {
				p.cutOff(d)
			}
			lifetime, how = time.After(time.Second), chance.IntN(4)
		}
	}
}

func (w *world) start(owner string, chance *rand.Rand) *process {
	p := &process{w: w, owner: owner, exited: make(chan struct{}), died: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	source := rand.New(rand.NewPCG(chance.Uint64(), 0))
	config := relay.Config{
		Store: p.store(source), Owner: owner, Lease: w.plan.lease, Drain: time.Second,
		Observer: p.observer(), Logger: slog.New(slog.DiscardHandler), Chance: lockedChance(source),
	}
	for _, e := range w.plan.ends {
		d := e.config
		if d.Shards = w.shardsOf(e.name); e.varies {
			e.varied(&d, chance)
		}
		w.configured(owner, d)
		d.Destination = p.destination(w.ends[e.name])
		if e.contracts {
			d.Contract = w.contract
		}
		config.Destinations = append(config.Destinations, d)
	}
	r, err := relay.New(config)
	if err != nil {
		panic(err)
	}
	w.note("%s starts", owner)
	go func() {
		defer close(p.exited)
		if err := r.Run(ctx); err != nil {
			w.violate("", "a relay goes on until it is stopped: %s returned %v", owner, err)
		}
	}()
	return p
}

func lockedChance(source *rand.Rand) func() float64 {
	var mu sync.Mutex
	return func() float64 {
		mu.Lock()
		defer mu.Unlock()
		return source.Float64()
	}
}

// contract judges an event as the contracts of a destination do.
func (w *world) contract(e *relay.Event) *relay.Outcome {
	if w.classOf(e.ID) != breach {
		return nil
	}
	w.reach("breach of contract")
	return &relay.Outcome{Kind: relay.Reject, Code: codeBreach, Message: "the field of the breach"}
}

// store is the process's way to the store. Between the two lies what gets lost and late.
func (p *process) store(source *rand.Rand) relay.Store {
	w := p.w
	from := func() *rand.Rand { return rand.New(rand.NewPCG(source.Uint64(), 1)) }
	points := []relaytest.Point{
		relaytest.BeforeRead, relaytest.AfterRead, relaytest.BeforeAcquire, relaytest.AfterAcquire,
		relaytest.BeforeRenew, relaytest.AfterRenew,
		relaytest.BeforeRelease, relaytest.AfterRelease, relaytest.BeforeSettle, relaytest.AfterSettle, relaytest.BeforeRecover,
		relaytest.AfterRecover, relaytest.BeforeClaim, relaytest.AfterClaim,
	}
	hanging := []relaytest.Point{
		relaytest.BeforeSettle, relaytest.AfterSettle, relaytest.BeforeRenew, relaytest.BeforeClaim, relaytest.AfterClaim,
	}
	often := from().Float64() * 0.05
	s := relaytest.FaultyStore(w.late(from(), often/5),
		p.alive,
		w.whileHostile(relaytest.Delays(from(), 15*time.Millisecond, points...)),
		w.whileHostile(relaytest.Hangs(from(), often/10, w.plan.lease*3/2, hanging...)),
		p.alive, // it may have died while the call was on its way
		p.connected,
		w.whileHostile(w.told(relaytest.Fails(from(), often, points...))),
	)
	if w.bug.Store != nil {
		s = w.bug.Store(s)
	}
	return s
}

// late returns the store with settles that arrive late as long as the world is hostile.
func (w *world) late(chance *rand.Rand, probability float64) relay.Store {
	return struct {
		relay.Store
		relay.Waker
	}{&lateWhileHostile{w.tap, relaytest.LateStore(w.tap, chance, probability, w.plan.lease*3/2), w}, w.store}
}

type lateWhileHostile struct {
	relay.Store
	late relay.Store
	w    *world
}

func (s *lateWhileHostile) Claim(ctx context.Context, l relay.LeaseID, c relay.Claim) (relay.Claimed, error) {
	if s.w.isCalm() {
		return s.Store.Claim(ctx, l, c)
	}
	return s.late.Claim(ctx, l, c)
}

func (s *lateWhileHostile) Settle(ctx context.Context, l relay.LeaseID, settlement relay.Settlement) (relay.Settled, error) {
	if s.w.isCalm() {
		return s.Store.Settle(ctx, l, settlement)
	}
	return s.late.Settle(ctx, l, settlement)
}

// told counts the faults that the simulation wants to have seen.
func (w *world) told(f relaytest.Fault) relaytest.Fault {
	states := map[relaytest.Point]string{
		relaytest.BeforeSettle: "settle failed", relaytest.AfterSettle: "settle answer lost",
		relaytest.AfterClaim: "claim answer lost", relaytest.AfterRecover: "recover answer lost",
	}
	return func(ctx context.Context, at relaytest.Point) error {
		err := f(ctx, at)
		if err != nil {
			w.note("fault %s", at)
			if state := states[at]; state != "" {
				w.reach(state)
			}
		}
		return err
	}
}

func (w *world) whileHostile(f relaytest.Fault) relaytest.Fault {
	return func(ctx context.Context, at relaytest.Point) error {
		if w.isCalm() {
			return nil
		}
		return f(ctx, at)
	}
}

var errDead = errors.New("the process is dead")

// alive lets nothing of a dead process through, and holds up what a frozen one does.
func (p *process) alive(context.Context, relaytest.Point) error {
	for {
		p.mu.Lock()
		dead, thaws := p.dead, p.thaws
		p.mu.Unlock()
		switch {
		case dead:
			return errDead
		case thaws == nil:
			return nil
		}
		<-thaws
	}
}

var errCut = errors.New("the store cannot be reached")

// connected lets nothing through while the store cannot be reached.
func (p *process) connected(context.Context, relaytest.Point) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cut {
		return errCut
	}
	return nil
}

// cutOff keeps the process from the store, but not from its destinations, for a time.
func (p *process) cutOff(d time.Duration) {
	p.setCut(true)
	p.w.note("%s is cut off from the store for %v", p.owner, d)
	if d > p.w.plan.lease {
		p.w.reach("cut off past the lease")
	}
	time.Sleep(d)
	p.setCut(false)
}

func (p *process) setCut(cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = cut
}

func (p *process) isDead() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dead
}

// destination is the process's way to a far side.
func (p *process) destination(f *farSide) relay.Destination {
	var d relay.Destination = door{f, p}
	if f.endpoints > 0 {
		d = doorWithEndpoints{door{f, p}}
	}
	d = &watched{Destination: relaytest.FaultyDestination(d, p.alive), far: f, p: p}
	if r, ok := d.(*watched).Destination.(relay.Router); ok {
		d = &watchedRouter{d.(*watched), r}
	}
	if bug := p.w.bug.Destination; bug != nil {
		d = bug(d)
	}
	return d
}

// watched tells the oracle what a relay starts and what it is answered.
type watched struct {
	relay.Destination
	far *farSide
	p   *process
}

func (d *watched) MaxBatch() int { return d.far.batch }

func (d *watched) Deliver(ctx context.Context, batch []relay.Delivery) []relay.Outcome {
	epoch := d.p.w.started(d.p, d.far, batch)
	lone := d.p.w.enters(d.p, d.far, &batch[0], epoch)
	outcomes := d.Destination.Deliver(context.WithValue(ctx, epochKey{}, epoch), batch)
	d.p.w.leaves(lone, outcomes)
	d.p.w.answered(d.p, d.far, batch, outcomes)
	return outcomes
}

// epochKey is the key of a context's value: the epoch under which a call was started.
type epochKey struct{}

type watchedRouter struct {
	*watched
	relay.Router
}

func (d *watchedRouter) EndpointLimit(endpoint string) int {
	return d.Router.(relay.Limiter).EndpointLimit(endpoint)
}

// stop ends the process cleanly.
func (p *process) stop() {
	p.w.note("%s is stopped", p.owner)
	calm := p.w.isCalm() && time.Since(p.w.began) > p.w.plan.hostile+2*p.w.plan.lease // nothing from before is on its way
	p.cancel()
	<-p.exited
	if calm {
		p.w.stoppedCleanly(p)
	}
}

// kill ends it at once.
func (p *process) kill(by string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead {
		return
	}
	p.dead = true
	p.w.note("%s is killed by %s", p.owner, by)
	p.cancel()
	close(p.died)
}

// freeze holds up everything that it sends and gets for a time.
func (p *process) freeze(d time.Duration) {
	thaws := make(chan struct{})
	p.mu.Lock()
	p.thaws = thaws
	p.mu.Unlock()
	p.w.note("%s freezes for %v", p.owner, d)
	if d > p.w.plan.lease {
		p.w.reach("frozen past the lease")
	}
	time.Sleep(d)
	p.mu.Lock()
	p.thaws = nil
	p.mu.Unlock()
	close(thaws)
}

// observer counts what the relay says about itself, as long as it lives.
func (p *process) observer() relay.Observer {
	var o relay.Observer = &listener{p: p}
	if p.w.bug.Observer != nil {
		o = p.w.bug.Observer(o)
	}
	return o
}

type listener struct {
	relay.Unobserved
	p *process
}

func (l *listener) Noticed(destination string, n relay.Notice) {
	if !l.p.isDead() {
		l.p.w.heard(destination, l.p, n)
	}
}

func (l *listener) Attempted(destination string, attempts []relay.Attempt) {
	if !l.p.isDead() {
		l.p.w.decided(destination, attempts)
	}
}
