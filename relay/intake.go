package relay

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"
)

// read starts a read of the log when there is room for what it brings.
func (t *tenure) read(now time.Time) {
	if t.reading || !t.wantsMore() {
		return
	}
	if t.pollAt.After(now) {
		t.at(t.pollAt)
		return
	}
	room := t.MaxInFlight - t.board.inMemory
	limit := min(max(pageSize, t.maxBatch), max(t.MaxInFlight/2, 1))
	if room < max(min(limit, t.MaxInFlight/4), 1) || t.board.bytes >= t.MaxInFlightBytes {
		return
	}
	q := Query{Limit: min(limit, room), MaxBytes: t.MaxInFlightBytes - t.board.bytes, Topics: t.Topics, Shard: t.shard}
	q.After, q.Gaps = t.cursor.Ask()
	gapsOnly := t.cursor.Full()
	if gapsOnly {
		q.After = math.MaxInt64
	}
	t.reading = true
	t.workers.Go(func() {
		ctx, cancel := context.WithTimeout(t.storeCtx, t.ttl)
		defer cancel()
		page, err := t.store.Read(ctx, q)
		page.Full = page.Full || gapsOnly // nobody has looked at what lies above
		took := time.Since(now)
		breaches := t.judgeContracts(page.Events)
		t.pages <- func(now time.Time) { t.sawPage(page, breaches, err, took, now) }
	})
}

// wantsMore tells whether the unit is in a state to take in more of the log.
func (t *tenure) wantsMore() bool {
	switch {
	case t.stopping, t.pause.Reason != "":
		return false
	case t.behind:
		return true
	case t.isolating:
		return t.cursor.Next() < t.suspects
	case t.blind, t.board.held >= t.MaxHeldLanes:
		return false
	case t.router == nil:
		// With one endpoint nobody else is harmed by waiting until its rows are drained.
		e := t.board.endpoints[""]
		return e == nil || !e.spilled
	}
	return true
}

// sawPage takes in what a read brought.
func (t *tenure) sawPage(p Page, breaches breaches, err error, took time.Duration, now time.Time) {
	t.reading = false
	if err != nil {
		t.report(fmt.Errorf("read the log: %w", err))
		t.pollAt = now.Add(t.readFails.next())
		return
	}
	t.readFails.reset()
	seen := t.cursor.Saw(p)
	t.observer.Read(t.Name, len(p.Events), took)
	t.noticeGaps(seen)
	t.takeIn(p, breaches, now)
	if t.behind && !p.GapsCut && (t.cursor.Next() >= t.caughtUp || !p.Full) {
		t.behind, t.claimFrom = false, t.acc.number
		t.acc.wanted = true
	}
	if !p.Full && !p.GapsCut {
		t.suspects = 0 // what a former owner could see was seen; the last numbers may be lost
	}
	if len(p.Seqs) > 0 || len(p.GapSeqs) > 0 {
		t.poll.reset()
		t.pollAt, t.asleep = now, false
		return
	}
	wait := t.poll.next()
	t.pollAt = now.Add(wait)
	t.fallAsleep(wait)
}

func (t *tenure) noticeGaps(seen Seen) {
	if seen.Filled > 0 {
		t.observer.Noticed(t.Name, Notice{Kind: NoticeGapFilled, Count: seen.Filled})
	}
	if seen.Dead > 0 {
		t.observer.Noticed(t.Name, Notice{Kind: NoticeGapDead, Count: int(min(seen.Dead, math.MaxInt32))})
	}
}

// fallAsleep asks producers for a notification when nothing has come for a while, and reads once more after the flag
// is set: what was committed before it is seen by that read, what comes later sends a notification.
func (t *tenure) fallAsleep(wait time.Duration) {
	if _, ok := t.store.(Waker); ok && wait >= pollMax && !t.asleep && t.board.inMemory == 0 && t.pause.Reason == "" {
		t.asleep = true
		t.acc.wanted = true
		t.acc.then = func(now time.Time) { t.pollAt = now }
	}
}

// takeIn puts the events of a page into their lanes.
func (t *tenure) takeIn(p Page, breaches breaches, now time.Time) {
	deliveries := make([]delivery, len(p.Events))
	for i, event := range p.Events {
		if _, settled := t.above[event.Seq]; settled {
			delete(t.above, event.Seq)
			t.cursor.Done(event.Seq)
			continue
		}
		d := &deliveries[i]
		d.Delivery = Delivery{Event: event, PossibleDuplicate: event.Seq <= t.suspects}
		if t.router != nil {
			d.Endpoint = t.router.Endpoint(event)
		}
		d.endpoint = t.board.endpoint(d.Endpoint)
		d.readAt = now
		d.age = p.Now.Sub(event.CreatedAt)
		t.place(d, breaches[event.Seq])
	}
}

// place finds the place of a delivery that was read from the log: its lane, or a row of the ledger.
func (t *tenure) place(d *delivery, breach *Outcome) {
	d.lane = d.endpoint.lanes[d.Key]
	t.board.remember(d)
	goesOn := d.Key == "" || !t.blind && !d.mustPark()
	switch {
	case d.tooLong():
		t.refuseTooLong(d)
	case breach != nil && (goesOn || t.OnQuarantine == Skip): // else it is judged again in its turn: it would hold its lane
		d.lane = t.board.lane(d.endpoint, d.Key)
		t.refuse(d, *breach)
	case t.blind && d.Key != "":
		d.lane = t.board.lane(d.endpoint, d.Key)
		t.park(d)
	case d.mustPark():
		t.park(d)
	case d.AvailableIn > 0:
		t.postpone(d)
	default:
		d.lane = t.board.lane(d.endpoint, d.Key)
		t.board.enqueue(d)
	}
}

// park writes a delivery that cannot go on now as a PENDING row, to be claimed later, and frees its memory.
func (t *tenure) park(d *delivery) {
	if d.endpoint.parked = true; d.endpoint.low == 0 || d.Seq < d.endpoint.low || d.endpoint.after <= t.settledNo {
		d.endpoint.low = d.Seq
	}
	if d.lane != nil {
		d.lane.early = d.lane.early || d.claimed
		if d.lane.parked = true; d.lane.low == 0 || d.Seq < d.lane.low || d.lane.after <= t.settledNo {
			d.lane.low = d.Seq
		}
		if !d.endpoint.spilled {
			t.board.hold(d.lane)
		}
	}
	t.gather(d, Row{Status: StatusPending, Attempts: d.before, OpenLane: d.Key != "", ErrorCode: t.takenOver(d)})
	if t.behind && d.lane != nil { // it may stand before the row that its lane waits for
		d.lane.reached(d.lane.waitsFor)
		t.board.rest(d.lane)
	}
}

// takenOver returns the error code of a row that is written without an attempt: it keeps in mind, over claims and owners,
// that the delivery may have been sent before.
func (t *tenure) takenOver(d *delivery) string {
	if d.PossibleDuplicate {
		return CodeTakeover
	}
	return ""
}

// postpone writes a delivery down that is not available yet. Its lane waits for it.
func (t *tenure) postpone(d *delivery) {
	t.due(d.AvailableIn)
	t.gather(d, Row{Status: StatusPending, Attempts: d.before, OpenLane: d.Key != "", Due: true, NextIn: d.AvailableIn,
		ErrorCode: t.takenOver(d)})
	if d.lane = t.board.lane(d.endpoint, d.Key); d.lane != nil {
		t.board.holdFor(d.lane, d.Seq)
	}
}

// spill parks everything that waits for an endpoint, so that others can go on. New events for it are parked as well until
// its rows are drained.
func (t *tenure) spill(e *endpoint) {
	e.spilled, e.passed = true, 0
	waiting := t.board.unqueueAll(e)
	for _, d := range waiting {
		t.park(d)
	}
	for _, l := range e.lanes {
		t.board.rest(l)
	}
	if len(waiting) > 0 {
		t.observer.Noticed(t.Name, Notice{Kind: NoticeParked, Endpoint: e.name, Count: len(waiting)})
	}
}

// relieve parks what waits behind busy lanes and endpoints when it has filled the memory, nothing else can start, and
// that has lasted for a while: one slow consumer harms nobody else.
func (t *tenure) relieve(now time.Time) {
	full := t.MaxInFlight-t.board.inMemory < t.MaxInFlight/4 || t.board.bytes >= t.MaxInFlightBytes
	if !full || !t.idleSlots || t.router == nil && !t.board.healthy("") {
		t.stuckSince = time.Time{}
		return
	}
	if t.stuckSince.IsZero() {
		t.stuckSince = now
	}
	if when := t.stuckSince.Add(stuckAfter); when.After(now) {
		t.at(when)
		return
	}
	t.stuckSince = time.Time{}
	for _, name := range t.board.names() {
		e := t.board.endpoints[name]
		if e.waiting == 0 {
			continue
		}
		if t.router != nil && e.breaker.room(now, e.calls, e.limit) <= 0 {
			t.spill(e)
			continue
		}
		t.parkBusy(e)
	}
}

// parkBusy parks what waits in the endpoint's busy lanes, beyond a batch each.
func (t *tenure) parkBusy(e *endpoint) {
	var parked []*delivery
	for _, l := range e.lanes {
		if !l.busy || len(l.queue) <= t.maxBatch {
			continue
		}
		tail := slices.Clone(l.queue[t.maxBatch:])
		l.queue = l.queue[:t.maxBatch]
		e.waiting -= len(tail)
		parked = append(parked, tail...)
	}
	slices.SortFunc(parked, bySeq)
	for _, d := range parked {
		t.park(d)
	}
	if len(parked) > 0 {
		t.observer.Noticed(t.Name, Notice{Kind: NoticeParked, Endpoint: e.name, Count: len(parked)})
	}
}
