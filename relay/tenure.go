package relay

import (
	"context"
	"sync"
	"time"
)

// tenure is what a unit knows while it holds the lease. Its loop owns all of it; store and destination are called on
// goroutines of their own, which answer through channels. At most one Read and one write to the ledger are under way.
//
//	page ──▶ intake ──▶ lanes ──▶ dispatch ──▶ answered ──▶ gather ──▶ settle
//	                      ▲                       │            │
//	                      └───── given back ◀─────┘            ▼
//	                      └───────────── claim ◀──────────── ledger
type tenure struct {
	*unit
	id      LeaseID
	lease   Lease     // as acquired
	renewed time.Time // when the last renewal or settle that succeeded was sent
	looked  time.Time // when the last Renew was sent: it also tells what an operator changed
	err     error     // why the tenure ends

	cursor   *Cursor
	board    *board
	reserved int64 // in_flight_to as stored: nothing above it may be handed out
	above    map[int64]struct{}
	handed   int64 // up to here a former owner may have handed out what has no row
	suspects int64 // the same, until all of it was read
	culprits map[int64]struct{}
	hunting  int  // claims that may still look for the culprits before anything is tried
	blind    bool // more lanes are blocked than could be listed
	// behind: the log has not been read again as far as the former owner had come, which is up to caughtUp at least. What
	// it wrote down of a lane may stand behind what it had only in memory, so nothing is claimed until then, and until
	// the settle claimFrom has written down what is parked.
	behind    bool
	caughtUp  int64
	claimFrom uint64

	isolating bool
	pause     Pause

	// Reading.
	reading    bool
	poll       *backoff
	pollAt     time.Time
	asleep     bool
	stuckSince time.Time
	readFails  *backoff

	// Delivering.
	calls     int // under way
	slow      int // of these, calls to one of several endpoints that have been under way for long
	underWay  []*call
	callsCtx  context.Context
	endCalls  context.CancelCauseFunc
	idleSlots bool // calls could start, but nothing is ready

	// Writing.
	acc         *gathered
	retry       *gathered // a settle that failed and is to be made again as it was
	writing     bool
	claimNext   bool
	retryAt     time.Time
	writeFails  *backoff
	settledAt   time.Time
	settledTo   int64     // position
	settledNo   uint64    // the number of the last settle that is done
	claimSees   uint64    // the number of the last settle that was done when the claim under way began
	highest     int64     // the highest number that has an outcome
	dueAt       time.Time // when the ledger has something due, as far as is known
	askedDue    time.Time // when it was last asked
	dues        uint64    // how often it was asked, and everything taken
	storeCtx    context.Context
	endStore    context.CancelFunc
	stopping    bool
	stopAt      time.Time
	finalSettle bool
	unwritten   []int64 // without a ledger: what was published above the position

	pages    chan func(now time.Time)
	answers  chan *call
	written  chan func(now time.Time)
	workers  sync.WaitGroup
	timer    *time.Timer
	wakeup   time.Time
	advanced time.Time // when the loop last looked
}

const (
	pollMin = 2 * time.Millisecond
	pollMax = 250 * time.Millisecond
	// A settle begins when this much has gathered, or this long after the first of it.
	settleCount = 1000
	settleWait  = 5 * time.Millisecond
	// slowAfter is how long a call may hold the position back before its deliveries get rows of their own.
	slowAfter = time.Second
	// stuckAfter is how long reading may be held up by what waits behind others before that is parked.
	stuckAfter = 250 * time.Millisecond
	// duePoll finds what an operator set going again.
	duePoll = time.Second
	// idleSettle is how often a position that moved over unwanted events alone is written, and a bound is taken.
	idleSettle = time.Second
	// endpointShare is the part of the concurrency, 1/endpointShare, that one of several endpoints may take: one that does
	// not answer must not take all of it. It may take as much as it needs for its first timeouts to open the breaker.
	endpointShare = 4
	// pageSize is how many events are read, or claimed from the ledger, at once.
	pageSize = 1000
)

func newTenure(u *unit, lease Lease, sent time.Time) *tenure {
	t := &tenure{
		unit:       u,
		id:         lease.LeaseID,
		lease:      lease,
		renewed:    sent,
		looked:     sent,
		cursor:     NewCursor(lease.Position, lease.Gaps),
		reserved:   lease.InFlightTo,
		pause:      lease.Pause,
		isolating:  lease.CrashCount >= IsolateAfter,
		poll:       newBackoff(pollMin, pollMax),
		readFails:  newBackoff(50*time.Millisecond, u.ttl/3),
		writeFails: newBackoff(50*time.Millisecond, u.ttl/6),
		acc:        &gathered{number: 1},
		settledTo:  lease.Position,
		highest:    lease.Position,
		pages:      make(chan func(time.Time), 1),
		answers:    make(chan *call, 2*u.Concurrency),
		written:    make(chan func(time.Time), 1),
		timer:      time.NewTimer(0),
	}
	t.handed = min(lease.InFlightTo, lease.LastSeq)
	t.suspects = t.handed
	perLane := t.maxBatch
	if t.OnQuarantine == Hold {
		perLane = 1 // those behind one that is rejected must not have been sent
	}
	t.board = newBoard(t.newEndpoint, perLane)
	return t
}

func (t *tenure) newEndpoint(name string) *endpoint {
	limit := t.Concurrency
	if name != "" {
		limit = min(limit, max(limit/endpointShare, t.Breaker.Failures))
	}
	if t.limiter != nil {
		if n := t.limiter.EndpointLimit(name); n > 0 {
			limit = min(n, t.Concurrency)
		}
	}
	return &endpoint{
		name:    name,
		limit:   limit,
		breaker: newBreaker(t.Breaker),
		guard:   newGuard(t.Guard),
		lanes:   map[string]*lane{},
		spilled: t.isolating,
	}
}

// run is the loop. It returns nil after a clean stop.
func (t *tenure) run(ctx context.Context) error {
	t.callsCtx, t.endCalls = context.WithCancelCause(context.WithoutCancel(ctx))
	t.storeCtx, t.endStore = context.WithCancel(context.WithoutCancel(ctx))
	defer t.end()
	if err := t.takeOver(ctx); err != nil {
		return err
	}
	done := ctx.Done()
	for {
		now := time.Now()
		t.advance(now)
		if t.err != nil || t.finished() {
			return t.err
		}
		t.timer.Reset(max(0, t.wakeup.Sub(now)))
		select {
		case apply := <-t.pages:
			apply(time.Now())
		case c := <-t.answers:
			t.answered(c, time.Now())
		case apply := <-t.written:
			apply(time.Now())
		case <-t.wake:
			t.poll.reset()
			t.pollAt = time.Time{}
		case <-t.timer.C:
		case <-done:
			done = nil
			t.stop(time.Now())
		}
	}
}

// advance starts everything that can be started, and finds out when to look again at the latest.
func (t *tenure) advance(now time.Time) {
	t.advanced, t.wakeup = now, now.Add(t.ttl)
	if t.expired(now) {
		t.lose()
		return
	}
	t.leaveIsolation()
	if t.blind && !t.behind && t.board.held < t.MaxHeldLanes {
		t.restart(now) // for another list, with lanes that this one had no room for
	}
	t.markSlow(now)
	t.dispatch(now)
	t.relieve(now)
	t.write(now)
	t.read(now)
	t.publishStatus(now)
}

// at asks the loop to look again at that time. A time that has passed asks for nothing: what is still in the way then
// (a call to a silent endpoint) ends with an event, and looking again and again would not end it.
func (t *tenure) at(when time.Time) {
	if when.After(t.advanced) && when.Before(t.wakeup) {
		t.wakeup = when
	}
}

// mayStart tells whether deliveries may start: with two thirds of the lease gone without a renewal, another relay might
// begin before they are done.
func (t *tenure) mayStart(now time.Time) bool {
	return now.Sub(t.renewed) < t.ttl*2/3
}

func (t *tenure) expired(now time.Time) bool {
	t.at(t.renewed.Add(t.ttl))
	return now.Sub(t.renewed) >= t.ttl
}

// lose ends the tenure at once: nothing more may be delivered or written.
func (t *tenure) lose() {
	t.err = ErrLeaseLost
	t.endCalls(ErrLeaseLost)
}

// stop begins a clean stop: nothing new is started, what is under way has until stopAt.
func (t *tenure) stop(now time.Time) {
	t.stopping = true
	t.stopAt = now.Add(t.drain)
}

// finished carries the clean stop on, step by step.
func (t *tenure) finished() bool {
	if !t.stopping {
		return false
	}
	now := time.Now()
	if t.calls > 0 {
		if now.Before(t.stopAt) {
			t.at(t.stopAt)
		} else {
			t.endCalls(ErrShutdown)
		}
		return false
	}
	if !t.finalSettle && !t.reading && !t.writing {
		t.finalSettle, t.acc.wanted = true, true
		t.putBack()
		t.write(now)
	}
	// A settle that cannot be made in time is left to the next owner, who will see an unclean stop.
	late := t.stopAt.Add(t.drain)
	t.at(late)
	return t.finalSettle && t.retry == nil && !t.writing && !t.wantSettle(now) || !now.Before(late)
}

// putBack returns what was claimed and did not get its turn to the ledger.
func (t *tenure) putBack() {
	for _, e := range t.board.endpoints {
		for _, d := range t.board.unqueueAll(e) {
			if d.claimed || d.rowed {
				t.untake(d)
			}
		}
	}
}

// untake returns a delivery to the ledger, due at once.
func (t *tenure) untake(d *delivery) {
	status := StatusPending
	if d.before > 0 {
		status = StatusFailed
	}
	t.gather(d, Row{Status: status, Attempts: d.before, Due: true, OpenLane: d.Key != "", ErrorCode: t.takenOver(d)})
}

// end waits for everything that was started.
func (t *tenure) end() {
	t.endCalls(ErrShutdown)
	clean := t.err == nil && t.finalSettle && t.retry == nil && !t.writing
	if !clean {
		t.endStore()
	}
	t.workers.Wait() // their channels have room for all that they may still say
	if clean {
		t.release(t.storeCtx, t.id)
	}
	t.endStore()
	t.timer.Stop()
}

// publishStatus lets others see how the unit is doing.
func (t *tenure) publishStatus(now time.Time) {
	if s := t.status.Load(); s.Leased && now.Sub(s.seen) < 100*time.Millisecond && s.Pause == t.pause {
		return
	}
	s := &UnitStatus{
		Destination: t.Name, Shard: t.shard, Leased: true, Holder: t.owner, Position: t.settledTo,
		InFlight: t.board.inMemory, Held: t.board.held, Pause: t.pause, seen: now,
	}
	for _, name := range t.board.names() {
		e := t.board.endpoints[name]
		if e.breaker.state == closed && !e.spilled {
			continue
		}
		state := e.breaker.state.String()
		if e.breaker.state == closed {
			state = "draining"
		}
		s.Endpoints = append(s.Endpoints, EndpointStatus{Endpoint: e.name, State: state, Code: e.breaker.code})
	}
	t.status.Store(s)
	t.at(now.Add(t.ttl / 4)) // so that a loop with nothing to do still shows that it is alive
}
