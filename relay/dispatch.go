package relay

import (
	"context"
	"errors"
	"slices"
	"time"
)

// call is one call of Deliver.
type call struct {
	endpoint   *endpoint
	deliveries []*delivery
	batch      []Delivery
	outcomes   []Outcome
	probe      bool
	started    time.Time
	took       time.Duration
	marked     bool // its deliveries have rows, because it is slow
}

// dispatch starts calls as long as there is something ready and room for it.
func (t *tenure) dispatch(now time.Time) {
	t.idleSlots = false
	if t.stopping || t.pause.Reason != "" || t.cursor.Next() > t.reserved {
		return // what was read above the reservation waits for the settle that moves it
	}
	if !t.mayStart(now) {
		return
	}
	limit, size := t.Concurrency, t.maxBatch
	if t.isolating {
		limit, size = 1, 1
	}
	for t.calls-min(t.slow, limit) < limit { // what is slow takes no room from the others, as long as it is not more than that
		e := t.nextEndpoint(now)
		if e == nil {
			t.idleSlots = true
			return
		}
		n := size
		probe := e.breaker.start()
		if probe {
			n = 1
		}
		c := &call{endpoint: e, probe: probe, started: now}
		c.deliveries = t.board.take(e, n, make([]*delivery, 0, min(n, e.waiting)))
		t.start(c)
	}
}

// nextEndpoint finds the endpoint whose turn it is among those that have something to start and room for it.
func (t *tenure) nextEndpoint(now time.Time) *endpoint {
	turns := t.board.turns
	for i, e := range turns {
		if len(e.ready) == 0 && len(e.loose) == 0 {
			continue
		}
		if e.breaker.room(now, e.calls, e.limit) <= 0 {
			if e.breaker.state == open || e.breaker.state == paused {
				t.at(e.breaker.until)
			}
			continue
		}
		copy(turns[i:], turns[i+1:])
		turns[len(turns)-1] = e
		return e
	}
	return nil
}

func (t *tenure) start(c *call) {
	c.batch = make([]Delivery, len(c.deliveries))
	repeated := 0
	for i, d := range c.deliveries {
		d.Attempt = d.before + 1
		c.batch[i] = d.Delivery
		if d.PossibleDuplicate && !d.counted {
			d.counted = true
			repeated++
		}
	}
	if repeated > 0 {
		t.observer.Noticed(t.Name, Notice{Kind: NoticePossibleDuplicate, Endpoint: c.endpoint.name, Count: repeated})
	}
	c.endpoint.calls++
	t.calls++
	t.underWay = append(t.underWay, c)
	t.workers.Go(func() {
		ctx, cancel := context.WithTimeout(t.callsCtx, t.Timeout)
		defer cancel()
		c.outcomes = t.Destination.Deliver(ctx, c.batch)
		c.took = time.Since(c.started)
		t.answers <- c
	})
}

// answered takes in what came back from a call.
func (t *tenure) answered(c *call, now time.Time) {
	c.endpoint.calls--
	t.calls--
	t.underWay = slices.DeleteFunc(t.underWay, func(other *call) bool { return other == c })
	for len(c.outcomes) < len(c.deliveries) {
		c.outcomes = append(c.outcomes, Outcome{Code: "NO_OUTCOME", Message: "the destination gave no outcome for this delivery", Uncertain: true})
	}
	attempts := make([]Attempt, 0, len(c.deliveries))
	for i := 0; i < len(c.deliveries); {
		n := 1 // deliveries of one lane stand together
		for c.deliveries[i].lane != nil && i+n < len(c.deliveries) && c.deliveries[i+n].lane == c.deliveries[i].lane {
			n++
		}
		attempts = t.judge(c, i, i+n, now, attempts)
		i += n
	}
	t.observer.Attempted(t.Name, attempts)
	if t.router != nil && c.endpoint.breaker.state != closed && !t.stopping {
		t.spill(c.endpoint)
	}
}

// judge decides the outcomes of the deliveries i to j of a call, which are those of one lane. The first that is to be tried
// again takes those behind it along: uncharged, unless they arrived.
func (t *tenure) judge(c *call, i, j int, now time.Time, attempts []Attempt) []Attempt {
	var stopped bool // something stands in the lane's way
	var back, behind []*delivery
	lane := c.deliveries[i].lane
	for ; i < j; i++ {
		d, o := c.deliveries[i], c.outcomes[i]
		if t.shutdown(o) {
			o = Outcome{Kind: Released, Uncertain: o.Uncertain}
		}
		t.learn(c.endpoint, o, now)
		v := t.policy.decide(o, d.before, c.probe, t.chance())
		t.countUncertain(d, o, v)
		if stopped && v.status != StatusPublished && v.status != StatusQuarantined {
			behind = append(behind, d)
			continue
		}
		attempts = append(attempts, Attempt{
			Delivery: c.batch[i], Outcome: o, Decision: v.status, Code: v.code, Took: c.took,
			Age: d.age + now.Sub(d.readAt), NextIn: v.nextIn,
		})
		t.highest = max(t.highest, d.Seq)
		switch v.status {
		case StatusPublished:
			t.published(d, o)
		case StatusQuarantined:
			t.quarantine(d, v)
			stopped = stopped || t.OnQuarantine == Hold && lane != nil
		case StatusFailed:
			t.failed(d, v)
			stopped = lane != nil
		default:
			back = append(back, d)
			stopped = lane != nil
		}
	}
	t.settleLane(lane, back, behind)
	return attempts
}

// settleLane lets a lane go on after a call: what came back uncharged goes to its head, or everything is parked behind
// a row that stands in its way.
func (t *tenure) settleLane(l *lane, back, behind []*delivery) {
	for _, d := range back {
		t.uncharge(d)
	}
	for _, d := range behind {
		t.uncharge(d)
	}
	if l == nil {
		t.board.giveBack(back)
		return
	}
	l.busy = false
	t.board.giveBack(append(back, behind...))
	if l.held && l.waits {
		for _, d := range t.board.unqueueBehind(l, l.waitsFor) {
			t.park(d)
		}
	}
	t.board.rest(l)
}

// uncharge takes an attempt back that had been written down before it was made.
func (t *tenure) uncharge(d *delivery) {
	if d.charged {
		d.charged = false
		t.gatherRow(d, Row{Status: StatusPublishing, Attempts: d.before, OpenLane: d.Key != ""})
	}
}

// shutdown recognises what a destination that does not know ErrShutdown makes of it.
func (t *tenure) shutdown(o Outcome) bool {
	return o.Kind != Published && o.Kind != Reject && errors.Is(context.Cause(t.callsCtx), ErrShutdown)
}

// learn tells the breaker and the guard of an endpoint what an outcome says about it.
func (t *tenure) learn(e *endpoint, o Outcome, now time.Time) {
	if o.Kind == Reject && e.breaker.staysPaused(now, o) {
		return
	}
	var opened, didClose bool
	switch {
	case o.Kind == Released:
		e.breaker.abandon()
	case o.Kind == Unavailable || o.Kind != Published && o.Kind != Reject && o.Trouble:
		opened = e.breaker.bad(now, o, e.limit)
	default:
		didClose = e.breaker.good(now, e.limit)
	}
	switch o.Kind {
	case Published:
		e.guard.published(now)
	case Reject:
		if e.guard.rejected(now) {
			t.guarded(e, o, now)
		}
		if o.Pause {
			opened = e.breaker.state == closed
			e.breaker.pause(now, o.Code)
		}
	}
	if opened {
		t.observer.Noticed(t.Name, Notice{Kind: NoticeBreakerOpen, Endpoint: e.name, Code: o.Code})
		t.log.Warn("the endpoint is down: probing it from time to time", "endpoint", e.name, "code", o.Code,
			"message", clip(o.Message, MaxErrorMessage), "state", e.breaker.state.String())
		t.acc.wanted = true
	}
	if didClose {
		t.observer.Noticed(t.Name, Notice{Kind: NoticeBreakerClosed, Endpoint: e.name})
		t.log.Info("the endpoint is back", "endpoint", e.name)
		t.acc.wanted = true
	}
}

// guarded stops a storm of rejects: a destination with one endpoint is paused until an operator resumes it, one of several
// endpoints is left alone but for a seldom probe.
func (t *tenure) guarded(e *endpoint, o Outcome, now time.Time) {
	t.observer.Noticed(t.Name, Notice{Kind: NoticeGuard, Endpoint: e.name, Code: o.Code})
	if t.router != nil {
		t.log.Error("nearly everything is rejected: the endpoint is paused", "endpoint", e.name, "code", o.Code,
			"hint", "look at the quarantined events and the endpoint's credentials; it is probed every few minutes")
		e.breaker.pause(now, CodeRejectStorm)
		return
	}
	t.log.Error("nearly everything is rejected: the destination is paused", "code", o.Code,
		"hint", "look at the quarantined events and the destination's credentials, then resume it")
	t.pause = Pause{Reason: CodeRejectStorm + ": nearly everything was rejected, the last with " + clip(o.Code, MaxErrorCode), By: "guard"}
	t.acc.Pause = t.pause
	t.acc.wanted = true
}

// countUncertain never lets a possible duplicate be silent.
func (t *tenure) countUncertain(d *delivery, o Outcome, v verdict) {
	if o.Uncertain {
		d.PossibleDuplicate, d.counted = true, true
		t.observer.Noticed(t.Name, Notice{Kind: NoticePossibleDuplicate, Endpoint: d.Endpoint, Code: v.code, Count: 1})
	}
}

// markSlow counts the calls that have been under way for long, and writes their deliveries down when others have got past
// them: the position moves on, and one slow delivery never stops the others.
func (t *tenure) markSlow(now time.Time) {
	t.slow = 0
	for _, c := range t.underWay {
		if when := c.started.Add(slowAfter); when.After(now) {
			t.at(when)
			continue
		}
		if c.endpoint.name != "" {
			t.slow++
		}
		if c.marked {
			continue
		}
		marked := 0
		for _, d := range c.deliveries {
			if d.claimed || d.rowed || d.Seq > t.highest {
				continue
			}
			d.rowed, d.charged = true, true
			t.cursor.Done(d.Seq)
			t.gatherRow(d, Row{Status: StatusPublishing, Attempts: d.before + 1, Attempted: true, OpenLane: d.Key != ""})
			marked++
		}
		c.marked = marked == len(c.deliveries)
		if marked > 0 {
			t.observer.Noticed(t.Name, Notice{Kind: NoticePublishing, Endpoint: c.endpoint.name, Count: marked})
		}
	}
}
