package relay

import (
	"context"
	"slices"
	"time"
)

// claim takes what the ledger holds and what can go on now: first what is due, then lanes that were held, then
// endpoints that were spilled. It reports whether a claim has started.
func (t *tenure) claim(now time.Time) bool {
	if t.stopping || t.pause.Reason != "" || t.behind || t.settledNo < t.claimFrom || !t.mayStart(now) {
		return false
	}
	room := min(pageSize, t.MaxInFlight-t.board.inMemory)
	if t.isolating {
		if t.board.inMemory > 0 || t.cursor.Next() < t.suspects {
			return false
		}
		if t.hunting == 0 {
			room = 1
		}
	}
	if room <= 0 || t.board.bytes >= t.MaxInFlightBytes {
		return false
	}
	c := Claim{Charge: t.isolating, Limit: room, MaxBytes: t.MaxInFlightBytes - t.board.bytes}
	return t.claimDue(c, now) || t.hunting == 0 && (t.claimLane(c) || t.claimEndpoint(c, now))
}

func (t *tenure) claimDue(c Claim, now time.Time) bool {
	if e := t.board.endpoints[""]; t.router == nil && e != nil && e.breaker.state != closed {
		if t.board.inMemory > 0 || e.breaker.room(now, e.calls, e.limit) <= 0 {
			t.at(e.breaker.until)
			return false
		}
		c.Limit = 1 // for the probe
	}
	when := t.dueAt
	if poll := t.askedDue.Add(duePoll); when.IsZero() || poll.Before(when) {
		when = poll
	}
	if when.After(now) {
		t.at(when)
		return false
	}
	c.Due, c.Charge = true, t.hunting == 0
	t.askedDue = now
	t.startClaim(c, func(r Claimed, now time.Time) {
		t.dueAt = time.Time{}
		if r.NextDue >= 0 {
			t.dueAt = now.Add(r.NextDue)
		}
		if r.More {
			t.dueAt = now
		} else {
			t.dues++
		}
		t.hunt(r.More)
	})
	return true
}

// hunt ends the search for culprits when all are found or everything that is due was seen. Until then nothing that is due
// is tried: it could be another one that ends the process, and the culprits would be forgotten over it, by turns.
func (t *tenure) hunt(more bool) {
	switch {
	case t.hunting == 0:
	case !more || len(t.culprits) == 0:
		t.hunting = 0
		t.dueAt = time.Now()
	default:
		t.hunting--
	}
}

func (t *tenure) claimLane(c Claim) bool {
	for i := 0; i < len(t.board.claims); {
		l := t.board.claims[i]
		if l.after > t.settledNo {
			i++
			continue
		}
		t.board.claims = slices.Delete(t.board.claims, i, i+1)
		l.claiming = false
		if !l.held || l.waits && !l.early || l.busy || len(l.queue) > 0 || l.endpoint.spilled {
			t.board.rest(l)
			continue
		}
		l.parked, l.early = false, false
		id := l.id
		c.Lane = &id
		c.Limit = min(c.Limit, max(2*t.maxBatch, 100))
		t.startClaim(c, func(r Claimed, now time.Time) {
			if len(r.Deliveries) > 0 || l.busy || len(l.queue) > 0 {
				return
			}
			switch {
			case l.parked:
				t.board.rest(l)
			case r.Blocked:
				t.board.holdFor(l, 0)
			default:
				t.board.free(l)
			}
		})
		return true
	}
	return false
}

// claimEndpoint goes on with the passes over spilled endpoints. A pass that begins with nothing in memory and finds
// nothing ends the spill: what is left waits for its lane, and those are known.
func (t *tenure) claimEndpoint(c Claim, now time.Time) bool {
	for _, e := range t.board.turns {
		if !e.spilled || e.waiting > e.limit*t.maxBatch {
			continue
		}
		if e.breaker.room(now, e.calls, e.limit) <= 0 {
			if e.breaker.state == open || e.breaker.state == paused {
				t.at(e.breaker.until)
			}
			continue
		}
		idle := e.calls == 0 && e.waiting == 0 && e.after <= t.settledNo
		if e.drained && !idle {
			continue // the next pass begins when what the last one found is done
		}
		if e.breaker.state != closed {
			if e.waiting > 0 {
				continue
			}
			c.Limit = 1
		}
		if idle {
			e.parked = false
		}
		c.Endpoint, c.After = &e.name, e.passed
		t.startClaim(c, func(r Claimed, now time.Time) { t.passed(e, c, r, idle) })
		return true
	}
	return false
}

// passed takes in how a pass over a spilled endpoint gets on.
func (t *tenure) passed(e *endpoint, c Claim, r Claimed, idle bool) {
	e.drained = false
	if n := len(r.Deliveries); n > 0 {
		e.passed = r.Deliveries[n-1].Event.Seq
		if e.breaker.state != closed {
			e.passed = 0 // a probe; the pass begins when it succeeds
		}
		return
	}
	e.passed = 0
	if c.After == 0 && idle && !e.parked {
		if e.name == "" && !t.sawDue(e) {
			return
		}
		e.spilled = false
		for _, l := range e.lanes {
			t.board.rest(l)
		}
		t.acc.wanted = t.acc.wanted || t.isolating
		return
	}
	e.drained, e.asked = c.After > 0 || !idle, 0
}

// sawDue tells whether what is due was claimed after a pass found nothing, and asks for it if not. A delivery that an operator
// replays may stand, due, before what is parked in a lane that nobody knows of. Where it has an endpoint, redirect holds its lane.
func (t *tenure) sawDue(e *endpoint) bool {
	switch {
	case e.asked == 0:
		e.asked = t.dues + 1
	case t.dues >= e.asked:
		e.asked = 0
		return true
	}
	t.due(0)
	return false
}

func (t *tenure) startClaim(c Claim, then func(r Claimed, now time.Time)) {
	t.claimSees = t.settledNo
	t.background(func(ctx context.Context) func(time.Time) {
		r, err := t.store.Claim(ctx, t.id, c)
		breaches := t.judgeClaimed(r.Deliveries)
		return func(now time.Time) {
			if t.writeFailed("claim from the ledger", err, now) {
				t.restart(now)
				return
			}
			t.claimed(c, r, breaches, now)
			then(r, now)
		}
	})
}

// restart ends the tenure cleanly, for another one to follow. A claim whose answer was lost may have taken rows that nobody
// here knows of: only a takeover finds them.
func (t *tenure) restart(now time.Time) {
	if t.err == nil && !t.stopping {
		t.stop(now)
	}
}

// claimed takes in what a claim brought.
func (t *tenure) claimed(c Claim, r Claimed, breaches breaches, now time.Time) {
	deliveries := make([]delivery, len(r.Deliveries))
	for i, open := range r.Deliveries {
		if to := t.route(open); to != open.Endpoint {
			t.redirect(&deliveries[i], open, to)
			continue
		}
		e := t.board.endpoint(open.Endpoint)
		e.asked = 0
		l := t.board.lane(e, open.Event.Key)
		if l != nil {
			l.reached(open.Event.Seq)
		}
		if open.Status == StatusDiscarded {
			if l != nil {
				t.board.rest(l)
			}
			continue
		}
		d := &deliveries[i]
		d.Delivery = Delivery{Event: open.Event, Endpoint: open.Endpoint}
		d.PossibleDuplicate = open.LastErrorCode == CodeTakeover
		d.endpoint, d.lane, d.claimed, d.charged = e, l, true, c.Charge
		d.before, d.readAt = open.Attempts, now
		d.age = now.Sub(open.Event.CreatedAt) // by two clocks: good enough to be looked at
		t.board.remember(d)
		t.placeClaimed(d, open, c, breaches[open.Event.Seq])
	}
}

// route is the endpoint of a claimed delivery. One that had been published before an operator set it going again has lost its
// own: it goes where the event would go now.
func (t *tenure) route(open Open) string {
	if t.router == nil || open.Endpoint != "" || open.Status == StatusDiscarded {
		return open.Endpoint
	}
	return t.router.Endpoint(open.Event)
}

// redirect gives a delivery back to the ledger with its endpoint. It is delivered when it is claimed from there: it was claimed out
// of another lane, so nothing has seen to it yet that it does not overtake in this one.
func (t *tenure) redirect(d *delivery, open Open, to string) {
	if e := t.board.endpoints[open.Endpoint]; e != nil && e.lanes[open.Event.Key] != nil {
		l := e.lanes[open.Event.Key]
		l.reached(open.Event.Seq)
		l.after = t.acc.number // until then the ledger has the row in this lane
		t.board.rest(l)
	}
	d.Delivery = Delivery{Event: open.Event, Endpoint: to}
	d.PossibleDuplicate = open.LastErrorCode == CodeTakeover
	d.endpoint, d.claimed, d.before = t.board.endpoint(to), true, open.Attempts
	t.board.remember(d)
	if d.tooLong() {
		t.refuseTooLong(d)
		return
	}
	d.lane = t.board.lane(d.endpoint, d.Key)
	t.untake(d)
	t.due(0)
	if l := d.lane; l != nil {
		t.board.hold(l) // what is parked in the lane waits behind it from now on, and new events behind that
		t.board.rest(l)
	}
}

// placeClaimed finds the place of a delivery that came out of the ledger.
func (t *tenure) placeClaimed(d *delivery, open Open, c Claim, breach *Outcome) {
	l := d.lane
	if l != nil && !d.endpoint.spilled {
		t.board.hold(l) // further rows may stand behind it
	}
	switch {
	case t.isCulprit(open):
		t.quarantineCulprit(d)
	case t.hunting > 0:
		t.untake(d)
	case t.isSpent(open):
		t.giveUp(d, open)
	case breach != nil: // a repair, or a contract that is stricter now
		t.refuse(d, *breach)
	case d.AvailableIn > 0:
		t.postpone(d)
	case l != nil && (l.waits || t.unseen(d)), d.endpoint.spilled && !t.mayTry(d.endpoint, c):
		t.park(d) // its lane or endpoint was blocked while the claim was under way
		if l != nil {
			t.board.rest(l)
		}
	default:
		t.board.enqueue(d)
	}
}

// unseen tells whether something before the delivery in its lane was parked that the claim could not see. The lanes of a
// spilled endpoint are not remembered, so there it may be one of another lane.
func (t *tenure) unseen(d *delivery) bool {
	l, e := d.lane, d.endpoint
	return l.after > t.claimSees && l.low < d.Seq && l.low != 0 ||
		e.spilled && e.after > t.claimSees && e.low < d.Seq && e.low != 0
}

// mayTry tells whether what was claimed can be delivered, as far as its spilled endpoint is concerned.
func (t *tenure) mayTry(e *endpoint, c Claim) bool {
	return c.Endpoint != nil || t.isolating || e.breaker.state == closed
}
