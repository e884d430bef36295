package relay

import (
	"slices"
	"time"
)

// delivery is a Delivery in the relay's hands.
type delivery struct {
	Delivery
	endpoint *endpoint
	lane     *lane // nil: no key, no order
	before   int   // attempts charged before the next one
	claimed  bool  // it came out of the ledger: it has a row, and the cursor does not wait for it
	rowed    bool  // it has a row, PUBLISHING, because it is slow; the cursor does not wait for it any more
	charged  bool  // the attempt under way was written down before it was made
	counted  bool  // noticed as a possible duplicate
	readAt   time.Time
	age      time.Duration // by the database's clock, at readAt
}

// lane is the deliveries of one endpoint that share a key. At most one call is under way for it, with deliveries in
// log order; those behind wait in queue. A held lane has open rows in the ledger, all of them before what is
// read from the log from now on: its new events are parked behind them.
type lane struct {
	id       LaneID
	endpoint *endpoint
	queue    []*delivery
	busy     bool // a call is under way
	ready    bool // it stands in the endpoint's ready list
	held     bool
	// claiming: it stands in the board's list of lanes to claim.
	claiming bool
	// waits: a row stands in the way that only time or an operator moves. Otherwise a held lane is
	// claimed as soon as it has nothing in memory.
	waits bool
	// waitsFor is the number of that row, 0 when only the ledger knows it.
	waitsFor int64
	// parked: rows were added since the last claim began, so that an empty answer proves nothing.
	parked bool
	// early: a row was given back to the ledger that may stand before the one that the lane waits for (an operator set it going
	// again). The one waited for cannot be claimed before it, so the lane is asked for once more.
	early bool
	// after is the settle that has to be done before the ledger knows all that happened to the lane.
	after uint64
	// low is the lowest number that was parked by settles that a claim may not have seen.
	low int64
}

// endpoint is where deliveries go, with what protects it and them.
type endpoint struct {
	name    string
	limit   int // calls under way at once
	breaker breaker
	guard   guard
	calls   int // under way
	waiting int // deliveries in queues
	lanes   map[string]*lane
	ready   []*lane     // lanes with something to start
	loose   []*delivery // without a key, to start

	// spilled: rows wait in the ledger for nothing but this endpoint, and which lanes they belong to is not known
	// here; everything new is parked behind them until a pass over the ledger finds none left.
	spilled bool
	parked  bool   // rows were added since the pass began
	passed  int64  // the pass has come this far
	drained bool   // the pass has come to the end
	asked   uint64 // a pass has found nothing, and what is due has to have been claimed as often before that counts; 0: none has
	after   uint64 // after and low: as for a lane
	low     int64
}

// board is all that a unit holds in memory: endpoints, their lanes, and what waits in them. It is pure.
type board struct {
	endpoints map[string]*endpoint
	turns     []*endpoint // whose turn it is to start something, round robin
	newOne    func(name string) *endpoint
	perLane   int // deliveries of one lane in a batch

	inMemory int // deliveries
	bytes    int // the same in bytes
	held     int // held lanes
	claims   []*lane
}

func newBoard(newOne func(name string) *endpoint, perLane int) *board {
	return &board{endpoints: map[string]*endpoint{}, newOne: newOne, perLane: perLane}
}

func (b *board) endpoint(name string) *endpoint {
	e := b.endpoints[name]
	if e == nil {
		e = b.newOne(name)
		b.endpoints[name] = e
		b.turns = append(b.turns, e)
	}
	return e
}

// lane returns the lane of a key, made if need be; nil for no key.
func (b *board) lane(e *endpoint, key string) *lane {
	if key == "" {
		return nil
	}
	l := e.lanes[key]
	if l == nil {
		l = &lane{id: LaneID{Endpoint: e.name, Key: key}, endpoint: e}
		e.lanes[key] = l
	}
	return l
}

// mustPark tells whether a delivery that was just read has to wait behind rows of the ledger.
func (d *delivery) mustPark() bool {
	return d.endpoint.spilled || d.lane != nil && d.lane.held
}

// remember counts a delivery that was read or claimed; a settle that accounts for it takes it off again.
func (b *board) remember(d *delivery) {
	b.inMemory++
	b.bytes += d.Size()
}

// enqueue puts a delivery behind those of its lane.
func (b *board) enqueue(d *delivery) {
	d.endpoint.waiting++
	if d.lane == nil {
		d.endpoint.loose = append(d.endpoint.loose, d)
		return
	}
	d.lane.queue = append(d.lane.queue, d)
	b.wakeLane(d.lane)
}

// wakeLane lets a lane start again if it has something to start.
func (b *board) wakeLane(l *lane) {
	if !l.busy && !l.ready && len(l.queue) > 0 {
		l.ready = true
		l.endpoint.ready = append(l.endpoint.ready, l)
	}
}

// giveBack puts deliveries of one lane, or of none, that came back uncharged at the head of where they were.
func (b *board) giveBack(ds []*delivery) {
	if len(ds) == 0 {
		return
	}
	e, l := ds[0].endpoint, ds[0].lane
	e.waiting += len(ds)
	if l == nil {
		e.loose = slices.Insert(e.loose, 0, ds...)
	} else {
		l.queue = slices.Insert(l.queue, 0, ds...)
	}
}

// take returns up to n deliveries of the endpoint to start, in lane order, and marks their lanes busy.
func (b *board) take(e *endpoint, n int, into []*delivery) []*delivery {
	for n > 0 && (len(e.ready) > 0 || len(e.loose) > 0) {
		if k := min(n, len(e.loose)); k > 0 {
			into = append(into, e.loose[:k]...)
			e.loose = e.loose[k:]
			e.waiting -= k
			n -= k
		}
		for n > 0 && len(e.ready) > 0 {
			l := e.ready[0]
			e.ready = e.ready[1:]
			l.ready = false
			k := min(n, len(l.queue), b.perLane)
			if k == 0 {
				continue
			}
			l.busy = true
			into = append(into, l.queue[:k]...)
			l.queue = l.queue[k:]
			e.waiting -= k
			n -= k
		}
	}
	return into
}

// hold makes a lane wait behind rows of the ledger.
func (b *board) hold(l *lane) {
	if !l.held {
		l.held = true
		b.held++
	}
}

// holdFor makes a lane wait behind a row that only time or an operator moves; 0: the ledger knows which.
func (b *board) holdFor(l *lane, seq int64) {
	b.hold(l)
	if !l.waits || seq != 0 && (l.waitsFor == 0 || seq < l.waitsFor) {
		l.waitsFor = seq
	}
	l.waits = true
}

// reached is told that a row of the lane was claimed: nothing in the ledger stands before it.
func (l *lane) reached(seq int64) {
	if l.waitsFor == 0 || seq <= l.waitsFor {
		l.waits, l.waitsFor = false, 0
	}
}

// rest decides what a lane that is not busy does next: go on, ask the ledger for what it is held by, or be forgotten.
func (b *board) rest(l *lane) {
	switch {
	case l.busy:
	case len(l.queue) > 0:
		b.wakeLane(l)
	case l.held && (l.waits && !l.early || l.endpoint.spilled): // time, an operator, or the passes over the endpoint come first
	case l.held:
		if !l.claiming {
			l.claiming = true
			b.claims = append(b.claims, l)
		}
	default:
		delete(l.endpoint.lanes, l.id.Key)
	}
}

// free ends a hold.
func (b *board) free(l *lane) {
	if l.held {
		l.held, l.waits, l.waitsFor = false, false, 0
		b.held--
	}
	b.rest(l)
}

// unqueue takes everything out of a lane's queue.
func (b *board) unqueue(l *lane) []*delivery {
	ds := l.queue
	l.queue = nil
	l.endpoint.waiting -= len(ds)
	if l.ready {
		l.ready = false
		l.endpoint.ready = slices.DeleteFunc(l.endpoint.ready, func(other *lane) bool { return other == l })
	}
	return ds
}

// unqueueBehind takes what stands behind a number out of a lane's queue. What stands before it goes on.
func (b *board) unqueueBehind(l *lane, seq int64) (behind []*delivery) {
	for _, d := range b.unqueue(l) {
		if d.Seq < seq {
			b.enqueue(d)
		} else {
			behind = append(behind, d)
		}
	}
	return behind
}

// unqueueAll takes everything that waits for the endpoint out of memory's queues.
func (b *board) unqueueAll(e *endpoint) []*delivery {
	ds := e.loose
	e.loose = nil
	e.waiting -= len(ds)
	for _, l := range e.lanes {
		ds = append(ds, b.unqueue(l)...)
	}
	slices.SortFunc(ds, bySeq)
	return ds
}

// names lists the endpoints in a fixed order.
func (b *board) names() []string {
	names := make([]string, 0, len(b.endpoints))
	for name := range b.endpoints {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// healthy tells whether the endpoint's breaker is closed.
func (b *board) healthy(name string) bool {
	e := b.endpoints[name]
	return e == nil || e.breaker.state == closed
}

func bySeq(a, b *delivery) int {
	if a.Seq < b.Seq {
		return -1
	}
	return 1
}
