package relaytest_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pillarbox-dev/pillarbox/relay"
	"github.com/pillarbox-dev/pillarbox/relay/relaytest"
)

// world is one run: a store, producers, relays that die and freeze, far ends that fail, an operator, and the oracle that knows
// what was promised.
type world struct {
	seed  uint64
	bug   relaytest.Bug
	plan  plan
	store *relaytest.Memory
	tap   relay.Store // the store as the relays' calls arrive at it
	ops   resharder   // the store as an operator's do
	ends  map[string]*farSide
	calm  chan struct{} // closed when nothing more goes wrong
	began time.Time

	mu         sync.Mutex
	facts      map[string]*fact // by event id
	numbers    map[int64]*fact
	lanes      map[string][]*fact // by partition key, in the order of their numbers
	violations []string
	reached    map[string]int
	trace      []traced
	tries      int
	keys       map[string]chan struct{} // locked by a producer
	noticed    map[string]int           // possible duplicates, by destination
	duplicates map[string]int
	held       map[string]map[int64]bool // numbers in the hands of a destination's owner
	latest     map[laneTime]int64        // the number that was tried last
	shards     map[string]int            // how many each destination has
	halt       *halt                     // the present one, or the next
	most       map[string]int            // attempts, by owner and destination
	lone       map[string]*lone          // by destination, epoch and endpoint
}

// plan is what a seed decides about a run.
type plan struct {
	hostile   time.Duration // how long things go wrong
	relays    int
	producers int
	killers   bool
	operator  bool
	quick     bool // the operator is
	storms    bool
	lease     time.Duration
	ends      []endPlan
}

// endPlan is one destination.
type endPlan struct {
	name      string
	batch     int
	endpoints int // 0: it is no router
	topics    relay.Topics
	contracts bool
	reshards  bool // the operator changes the number of its shards
	moves     bool // half of the keys go to another endpoint after a while
	noLedger  bool // some of the processes at least have none
	varies    bool // each process is configured a little differently
	config    relay.DestinationConfig
}

func newPlan(seed uint64) plan {
	chance := chanceOf(seed, "plan")
	p := plan{
		hostile:   time.Duration(5+chance.IntN(15)) * time.Second,
		relays:    1 + chance.IntN(3),
		producers: 1 + chance.IntN(4),
		killers:   chance.IntN(8) == 0,
		operator:  chance.IntN(2) == 0,
		quick:     chance.IntN(4) == 0,
		storms:    chance.IntN(6) == 0,
		lease:     time.Duration(2+chance.IntN(3)) * time.Second,
	}
	for i := range 1 + chance.IntN(2) {
		p.ends = append(p.ends, newEndPlan(chance, fmt.Sprint("dest-", i), p.lease))
		p.ends[i].divide(chanceOf(seed, fmt.Sprint("shards ", i)))
		p.ends[i].vary(chanceOf(seed, fmt.Sprint("varies ", i)))
	}
	return p
}

func newEndPlan(chance *rand.Rand, name string, lease time.Duration) endPlan {
	e := endPlan{name: name, batch: 1}
	if chance.IntN(3) == 0 {
		e.batch = 2 + chance.IntN(9)
	}
	if chance.IntN(2) == 0 {
		e.endpoints = 2 + chance.IntN(2)
	}
	if chance.IntN(4) == 0 {
		e.topics = relay.Topics{"orders.*"}
	}
	e.contracts = chance.IntN(3) == 0
	e.config = relay.DestinationConfig{
		Name:         name,
		Topics:       e.topics,
		Timeout:      lease / time.Duration(2+chance.IntN(3)),
		Concurrency:  1 + chance.IntN(8),
		MaxInFlight:  e.batch + 8 + chance.IntN(60),
		MaxHeldLanes: []int{2, 100}[min(chance.IntN(6), 1)],
		NoLedger:     chance.IntN(8) == 0,
		CodeOnly:     chance.IntN(2) == 0,
		OnQuarantine: relay.OnQuarantine(chance.IntN(2)),
		Retry: relay.RetryPolicy{Base: time.Duration(50+chance.IntN(400)) * time.Millisecond, Max: 4 * time.Second,
			MaxAttempts: 4 + chance.IntN(4)},
		Breaker: relay.BreakerConfig{Failures: 5, MinSamples: 8, Window: 10 * time.Second,
			Probe: time.Second, MaxProbe: 5 * time.Second, PauseProbe: 4 * time.Second},
		Guard: relay.GuardConfig{Rejects: 6, MinSamples: 12, Window: 5 * time.Second},
	}
	return e
}

// class is what happens to an event wherever it is delivered.
type class int

const (
	plain    class = iota
	poison         // rejected
	hopeless       // never accepted, never rejected
	flaky          // accepted after some attempts
	killer         // ends the process that delivers it
	breach         // breaks its contract, where there are contracts
)

const codeBreach = "SCHEMA_INVALID"

// fact is an event as its producer knows it.
type fact struct {
	id, key, topic string
	seq            int64
	class          class
	committed      bool
	available      time.Time
	tracks         map[string]*track // by destination
}

type traced struct {
	at     time.Duration
	id     string
	format string
	args   []any
}

func newWorld(seed uint64, bug relaytest.Bug) *world {
	w := &world{
		seed: seed, bug: bug, plan: newPlan(seed), store: &relaytest.Memory{}, ends: map[string]*farSide{}, calm: make(chan struct{}),
		began: time.Now(), facts: map[string]*fact{}, numbers: map[int64]*fact{}, lanes: map[string][]*fact{},
		reached: map[string]int{},
		keys:    map[string]chan struct{}{}, noticed: map[string]int{}, duplicates: map[string]int{}, held: map[string]map[int64]bool{},
		latest: map[laneTime]int64{}, shards: map[string]int{}, halt: newHalt(), most: map[string]int{}, lone: map[string]*lone{},
	}
	var database relay.Store = w.store
	if bug.Database != nil {
		database = bug.Database(w.store)
	}
	w.tap, w.ops = w.tapped(database), database.(resharder)
	for _, e := range w.plan.ends {
		w.ends[e.name] = newFarSide(w, e)
		w.shards[e.name] = e.config.Shards
	}
	return w
}

// run lets the world be hostile for a while, then calm, until everything is settled.
func (w *world) run() {
	stop := make(chan struct{})
	var relays, producers, operator sync.WaitGroup
	listening, deaf := context.WithCancel(context.Background())
	woken, _ := w.store.Listen(listening)
	operator.Go(func() {
		for range woken {
			w.reach("woken")
		}
	})
	for slot := range w.plan.relays {
		relays.Go(func() { w.supervise(slot, stop) })
	}
	for n := range w.plan.producers {
		producers.Go(func() { w.produce(n) })
	}
	operator.Go(func() { w.operate(stop) })
	time.Sleep(w.plan.hostile)
	close(w.calm)
	w.note("calm")
	producers.Wait()
	w.drain()
	close(stop)
	relays.Wait()
	deaf()
	operator.Wait()
	time.Sleep(2 * w.plan.lease) // what is late arrives
	w.settled()
}

// drain waits until everything that was committed is settled. It may take long when a lane is full of hopeless events, or a
// process dies of one event after the other, but not without an attempt for two minutes.
func (w *world) drain() {
	const most, idle = 20 * time.Minute, 2 * time.Minute
	began := time.Now()
	tries, latest := 0, began
	for ; ; time.Sleep(200 * time.Millisecond) {
		open := w.unsettled()
		if open == "" || w.failed() {
			return
		}
		if n := w.allTries(); n > tries {
			tries, latest = n, time.Now()
		}
		if time.Since(latest) > idle || time.Since(began) > most {
			w.violate("", "no lost event: %v after the last fault and %v after the last attempt, %s",
				time.Since(began), time.Since(latest), open)
			return
		}
	}
}

func (w *world) isCalm() bool {
	select {
	case <-w.calm:
		return true
	default:
		return false
	}
}

// produce commits, rolls back, undoes savepoints and holds transactions open, with and without keys.
func (w *world) produce(n int) {
	chance := chanceOf(w.seed, fmt.Sprint("producer ", n))
	for i := 0; !w.isCalm(); i++ {
		w.transact(chance, fmt.Sprintf("%d-%d", n, i))
		time.Sleep(time.Duration(chance.IntN(int(w.plan.hostile/20)) + 1))
	}
}

func (w *world) transact(chance *rand.Rand, name string) {
	pause := func() {
		if chance.IntN(3) == 0 {
			time.Sleep(time.Duration(chance.IntN(300)) * time.Millisecond)
		}
		if chance.IntN(25) == 0 {
			time.Sleep(time.Duration(chance.IntN(6000)) * time.Millisecond)
		}
	}
	tx := w.store.Begin()
	if chance.IntN(3) == 0 {
		tx.TakeXID()
		pause()
	}
	var facts []*fact
	insert := func(key string) {
		f := w.newFact(chance, fmt.Sprintf("%s-%d", name, len(facts)), key)
		event := relay.Event{ID: f.id, Key: f.key, Topic: f.topic, Type: "T", Payload: []byte(f.id)}
		if !f.available.IsZero() {
			event.AvailableIn = time.Until(f.available)
		}
		w.mu.Lock()
		f.seq = tx.Insert(event)
		w.facts[f.id], w.numbers[f.seq] = f, f
		w.mu.Unlock()
		facts = append(facts, f)
	}
	for range chance.IntN(3) {
		insert("")
	}
	pause()
	// The writers of one key are serialised by the row that they update.
	unlock := func() {}
	if chance.IntN(5) > 0 {
		key := fmt.Sprint("key-", chance.IntN(5))
		unlock = w.lockKey(key)
		for range 1 + chance.IntN(3) {
			insert(key)
		}
		if chance.IntN(5) == 0 {
			savepoint := tx.Savepoint()
			kept := len(facts)
			insert(key)
			tx.RollbackTo(savepoint)
			facts = facts[:kept]
		}
	}
	pause()
	if chance.IntN(5) == 0 {
		tx.Rollback()
	} else {
		w.committing(facts)
		tx.Commit()
	}
	unlock()
}

func (w *world) newFact(chance *rand.Rand, id, key string) *fact {
	f := &fact{id: id, key: key, topic: []string{"orders.new", "orders.paid", "stock"}[chance.IntN(3)], tracks: map[string]*track{}}
	switch n := chance.IntN(100); {
	case n < 3:
		f.class = poison
	case n < 6:
		f.class = hopeless
	case n < 18:
		f.class = flaky
	case n < 20 && w.plan.killers:
		f.class = killer
	case n < 22:
		f.class = breach
	}
	if chance.IntN(20) == 0 {
		f.available = time.Now().Add(time.Duration(chance.IntN(5000)) * time.Millisecond)
	}
	return f
}

// lockKey returns what ends the lock.
func (w *world) lockKey(key string) (unlock func()) {
	for {
		w.mu.Lock()
		held := w.keys[key]
		if held == nil {
			mine := make(chan struct{})
			w.keys[key] = mine
			w.mu.Unlock()
			return func() {
				w.mu.Lock()
				defer w.mu.Unlock()
				delete(w.keys, key)
				close(mine)
			}
		}
		w.mu.Unlock()
		<-held
	}
}

// committing tells the oracle, a moment early, that the events are there.
func (w *world) committing(facts []*fact) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range facts {
		f.committed = true
		if f.key != "" {
			w.lanes[f.key] = append(w.lanes[f.key], f)
		}
	}
}

// operate discards, retries, pauses, resumes and reshards. When the world is calm it clears what only an operator can clear.
func (w *world) operate(stop chan struct{}) {
	chance := chanceOf(w.seed, "operator")
	for {
		select {
		case <-stop:
			return
		case <-time.After(w.rest(chance)):
		}
		for _, e := range w.plan.ends {
			switch {
			case w.isCalm():
				w.clear(e, chance)
			case e.reshards && chance.IntN(6) == 0:
				w.reshard(e.name, chance, stop)
			case w.plan.operator:
				w.meddle(e, chance)
			case w.isPaused(e.name) && chance.IntN(3) == 0:
				w.pause(e.name, relay.Pause{})
			}
		}
	}
}

// rest is the time between two actions of the operator.
func (w *world) rest(chance *rand.Rand) time.Duration {
	if w.plan.quick && !w.isCalm() {
		return time.Duration(1+chance.IntN(60)) * time.Millisecond
	}
	return time.Duration(200+chance.IntN(1500)) * time.Millisecond
}

// clear resumes, and decides about what holds a lane.
func (w *world) clear(e endPlan, chance *rand.Rand) {
	if w.isPaused(e.name) {
		w.pause(e.name, relay.Pause{})
	}
	for _, row := range w.store.Deliveries(e.name) {
		if row.Status != relay.StatusQuarantined || !row.OpenLane {
			continue
		}
		w.reach("held by a quarantine")
		if chance.IntN(4) == 0 && row.ErrorCode != relay.CodeCrashedRelay {
			w.retry(e.name, row)
		} else {
			w.discard(e.name, row)
		}
	}
}

// meddle does something to a delivery that is not published, or to the whole destination.
func (w *world) meddle(e endPlan, chance *rand.Rand) {
	switch {
	case w.isPaused(e.name):
		w.pause(e.name, relay.Pause{})
		return
	case chance.IntN(8) == 0 && (!w.plan.quick || chance.IntN(20) == 0):
		w.pause(e.name, relay.Pause{Reason: "maintenance", By: "operator"})
		return
	}
	rows := w.store.Deliveries(e.name)
	if len(rows) > 0 && chance.IntN(6) == 0 {
		w.replay(e.name, rows[chance.IntN(len(rows))])
		return
	}
	rows = slices.DeleteFunc(rows, func(r relaytest.DeliveryRow) bool { return r.Status == relay.StatusPublished })
	if len(rows) == 0 {
		return
	}
	row := rows[chance.IntN(len(rows))]
	switch {
	case chance.IntN(2) == 0 && row.Status != relay.StatusPending && row.ErrorCode != relay.CodeCrashedRelay:
		w.retry(e.name, row)
	case chance.IntN(4) == 0 || row.Status == relay.StatusQuarantined:
		w.discard(e.name, row)
	}
}

// isPaused tells whether the destination is, or one of its shards.
func (w *world) isPaused(name string) bool {
	return slices.ContainsFunc(w.store.Cursors(name), func(c relaytest.CursorRow) bool { return c.Pause.Reason != "" })
}

func (w *world) pause(name string, p relay.Pause) {
	if err := w.store.SetPause(name, p); err == nil && p.Reason != "" {
		w.reach("paused")
	}
}

func (w *world) retry(name string, row relaytest.DeliveryRow) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.store.Retry(name, row.Seq) != nil {
		return
	}
	w.reached["retried by an operator"]++
	if t := w.trackOf(name, row.Seq); t != nil {
		t.again = t.again || !row.OpenLane
		t.rejected, t.quarantined = false, false
	}
	w.noteLocked("", "operator retries %d of %s", row.Seq, name)
}

func (w *world) replay(name string, row relaytest.DeliveryRow) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.store.Replay(name, row.Seq) != nil {
		return
	}
	w.reached["replayed by an operator"]++
	if t := w.trackOf(name, row.Seq); t != nil {
		t.again, t.accepted = true, 0 // it has to arrive once more
		t.rejected, t.quarantined, t.discarded = false, false, false
	}
	w.noteLocked("", "operator replays %d of %s, which was %s", row.Seq, name, row.Status)
}

func (w *world) discard(name string, row relaytest.DeliveryRow) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.store.Discard(name, row.Seq) != nil {
		return
	}
	w.reached["discarded"]++
	if row.OpenLane {
		w.reached["discarded in a held lane"]++
	}
	if t := w.trackOf(name, row.Seq); t != nil {
		t.discarded = true
	}
	w.noteLocked("", "operator discards %d of %s, which was %s", row.Seq, name, row.Status)
}

// allTries counts the attempts of all events at all destinations.
func (w *world) allTries() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.tries
}

func (w *world) reach(state string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reached[state]++
}

// note adds to the story of the relays.
func (w *world) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.noteLocked("", format, args...)
}

// noteLocked adds to the story; id is the event that it is about, "" for none.
func (w *world) noteLocked(id, format string, args ...any) {
	w.trace = append(w.trace, traced{time.Since(w.began), id, format, args})
}

// story tells what happened: everything, or what matters to the events that a promise was broken for.
func (w *world) story(everything bool) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "%+v\n", w.plan)
	told := map[string]int{}
	for _, line := range w.trace {
		if !everything && line.id != "" && !strings.Contains(w.violations[0], line.id+" ") {
			continue
		}
		text := line.id + " " + fmt.Sprintf(line.format, line.args...)
		if told[text]++; told[text] > 3 && !everything || len(told) > 150 && !everything {
			continue // the same over and over
		}
		fmt.Fprintf(&b, "%10s %s\n", line.at.Round(time.Millisecond), text)
	}
	return b.String()
}

func (w *world) failed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.violations) > 0
}

func (w *world) violate(id, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.violateLocked(id, format, args...)
}

func (w *world) violateLocked(id, format string, args ...any) {
	if len(w.violations) >= 3 {
		return // one leads to another
	}
	text := fmt.Sprintf(format, args...)
	w.noteLocked(id, "VIOLATION %s", text)
	w.violations = append(w.violations, fmt.Sprintf("%s: %s ", time.Since(w.began).Round(time.Millisecond), text))
}
