package relay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// gathered is what the next settle writes.
type gathered struct {
	Settlement
	number uint64        // settles are counted: a claim may have to wait for one
	since  time.Time     // when the first of it was gathered
	rowAt  map[int64]int // where in Rows a number stands
	wanted bool          // settle even if there is nothing but the cursor
	pause  Pause
	then   func(now time.Time)

	// For when it is written: what leaves memory, and how long it took.
	count, bytes int
	quarantined  int
	readAt       []time.Time
	mark         uint64
}

// gather adds the row of a delivery that leaves memory. The cursor need not wait for it any longer.
func (t *tenure) gather(d *delivery, r Row) {
	t.leave(d)
	t.gatherRow(d, r)
}

func (t *tenure) gatherRow(d *delivery, r Row) {
	a := t.acc
	a.begin()
	r.Seq, r.Endpoint, r.Key = d.Seq, d.Endpoint, d.Key
	d.endpoint.after = a.number
	if d.lane != nil {
		d.lane.after = a.number
	}
	if i, found := a.rowAt[r.Seq]; found {
		a.Rows[i] = r // the last word counts
		return
	}
	if a.rowAt == nil {
		a.rowAt = map[int64]int{}
	}
	a.rowAt[r.Seq] = len(a.Rows)
	a.Rows = append(a.Rows, r)
}

// leave lets go of a delivery: the next settle accounts for it.
func (t *tenure) leave(d *delivery) {
	if !d.claimed && !d.rowed {
		t.cursor.Done(d.Seq)
	}
	t.acc.count++
	t.acc.bytes += d.Size()
}

func (a *gathered) begin() {
	if a.since.IsZero() {
		a.since = time.Now()
	}
}

func (t *tenure) published(d *delivery, o Outcome) {
	t.acc.begin()
	t.acc.readAt = append(t.acc.readAt, d.readAt)
	if d.claimed || d.rowed {
		t.gather(d, Row{Status: StatusPublished, Attempts: d.before + 1, Attempted: true, Receipt: clip(o.Receipt, MaxErrorMessage)})
		return
	}
	t.leave(d)
	if t.NoLedger {
		t.unwritten = append(t.unwritten, d.Seq)
		return
	}
	t.acc.Published = append(t.acc.Published, Receipt{Seq: d.Seq, Receipt: clip(o.Receipt, MaxErrorMessage)})
}

func (t *tenure) failed(d *delivery, v verdict) {
	t.due(v.nextIn)
	t.gather(d, Row{Status: StatusFailed, Attempts: v.attempts, Attempted: true, OpenLane: d.Key != "", Due: true, NextIn: v.nextIn,
		ErrorCode: v.code, ErrorMessage: v.message})
	if d.lane != nil {
		t.board.holdFor(d.lane, d.Seq)
	}
}

func (t *tenure) quarantine(d *delivery, v verdict) {
	hold := t.OnQuarantine == Hold && d.lane != nil
	t.acc.quarantined++
	t.gather(d, Row{Status: StatusQuarantined, Attempts: v.attempts, Attempted: true, OpenLane: hold,
		ErrorCode: v.code, ErrorMessage: v.message})
	if hold {
		t.board.holdFor(d.lane, d.Seq)
	}
}

// due remembers when the ledger has to be asked for what is due.
func (t *tenure) due(in time.Duration) {
	if at := time.Now().Add(in); t.dueAt.IsZero() || at.Before(t.dueAt) {
		t.dueAt = at
	}
}

// write starts the next write to the ledger, if one is wanted and none is under way: a settle, a claim, or a renewal.
func (t *tenure) write(now time.Time) {
	if t.writing {
		return
	}
	if t.retryAt.After(now) {
		t.at(t.retryAt)
		return
	}
	renew := t.looked.Add(t.ttl / 3)
	t.at(renew)
	switch {
	case t.retry == nil && !now.Before(renew):
		t.renew(now)
	case t.claimNext && t.retry == nil && t.claim(now): // under load a settle is always wanted: claims take turns with them
		t.claimNext = false
	case t.wantSettle(now):
		t.claimNext = true
		t.settle(now)
	default:
		t.claim(now)
	}
}

// wantSettle tells whether a settle is due: enough has gathered, or it has waited long enough.
func (t *tenure) wantSettle(now time.Time) bool {
	a := t.acc
	if t.retry != nil || a.wanted || t.stopping && (a.count > 0 || len(a.Rows) > 0) {
		return true
	}
	if !t.stopping && t.cursor.Next() > t.reserved {
		return true // reserve ahead
	}
	if a.count+len(a.Rows) >= settleCount {
		return true
	}
	if !a.since.IsZero() {
		if when := a.since.Add(settleWait); when.After(now) {
			t.at(when)
			return false
		}
		return true
	}
	if t.cursor.Unbound() || t.cursor.Next() != t.settledTo && t.board.inMemory == 0 {
		when := t.settledAt.Add(idleSettle)
		t.at(when)
		return !when.After(now)
	}
	return false
}

// settle writes down what has gathered, atomically with the cursor.
func (t *tenure) settle(now time.Time) {
	a := t.retry
	if a == nil {
		a = t.acc
		t.acc = &gathered{number: a.number + 1}
		a.Position, a.Gaps = t.cursor.State()
		a.InFlightTo = t.cursor.Next() + int64(t.MaxInFlight)
		t.unwritten = slices.DeleteFunc(t.unwritten, func(seq int64) bool { return seq <= a.Position })
		if t.finalSettle {
			a.InFlightTo = max(a.Position, t.handed) // not all of it may have been sent again
			for _, seq := range t.unwritten {        // or the next owner would send them again
				a.Published = append(a.Published, Receipt{Seq: seq})
			}
		}
		a.mark = t.cursor.Mark()
		a.Pause = a.pause
		a.Asleep = t.asleep
		a.Trouble = t.trouble()
		a.CrashCount = t.crashCount(a.Position)
		a.Number = int64(a.number)
	}
	t.retry = a
	t.background(func(ctx context.Context) func(time.Time) {
		settled, err := t.store.Settle(ctx, t.id, a.Settlement)
		took := time.Since(now)
		return func(at time.Time) { t.settled(a, settled, err, now, took, at) }
	})
}

func (t *tenure) settled(a *gathered, s Settled, err error, sent time.Time, took time.Duration, now time.Time) {
	if t.writeFailed("settle", err, now) {
		return
	}
	t.retry = nil
	t.renewed, t.settledAt, t.settledNo = sent, now, a.number
	t.settledTo, t.reserved = a.Position, a.InFlightTo
	t.cursor.Bind(a.mark, s.Bound)
	t.board.inMemory -= a.count
	t.board.bytes -= a.bytes
	report := SettleReport{Took: took, Published: len(a.readAt), Quarantined: a.quarantined}
	report.Latencies = make([]time.Duration, len(a.readAt))
	for i, read := range a.readAt {
		report.Latencies[i] = now.Sub(read)
	}
	t.observer.Settled(t.Name, report)
	if a.then != nil {
		a.then(now)
	}
}

// trouble is the code of an endpoint that is down, "" when none is.
func (t *tenure) trouble() string {
	for _, e := range t.board.turns {
		if e.breaker.state != closed {
			return clip(e.breaker.code, MaxErrorCode)
		}
	}
	return ""
}

// crashCount is cleared by progress, but not by that of the isolation itself.
func (t *tenure) crashCount(position int64) int {
	if t.isolating || t.lease.CrashCount < IsolateAfter && position <= t.lease.Position {
		return t.lease.CrashCount
	}
	return 0
}

// renew prolongs the lease when there was nothing to settle.
func (t *tenure) renew(now time.Time) {
	t.looked = now
	t.background(func(ctx context.Context) func(time.Time) {
		r, err := t.store.Renew(ctx, t.id)
		return func(at time.Time) {
			if t.writeFailed("renew the lease", err, at) {
				return
			}
			t.renewed = now
			if t.acc.pause.Reason == "" && t.pause != r.Pause {
				t.pause = r.Pause
				t.log.Info("pause changed", "paused", r.Pause.Reason != "", "reason", r.Pause.Reason, "by", r.Pause.By)
			}
			t.err = checkLog(r.LastSeq, t.settledTo, t.Name)
		}
	})
}

// writeFailed takes in the error of a write, if there is one. It is tried again until the lease is over.
func (t *tenure) writeFailed(doing string, err error, now time.Time) bool {
	t.writing = false
	if err == nil {
		t.writeFails.reset()
		return false
	}
	if errors.Is(err, ErrLeaseLost) {
		t.lose()
		return true
	}
	t.report(fmt.Errorf("%s: %w", doing, err))
	t.retryAt = now.Add(t.writeFails.next())
	return true
}

// background makes a write to the ledger and brings its answer to the loop.
func (t *tenure) background(write func(ctx context.Context) (apply func(now time.Time))) {
	t.writing = true
	t.workers.Go(func() {
		ctx, cancel := context.WithTimeout(t.storeCtx, t.ttl/2)
		defer cancel()
		t.written <- write(ctx)
	})
}

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
		if !l.held || l.waits || l.busy || len(l.queue) > 0 || l.endpoint.spilled {
			t.board.rest(l)
			continue
		}
		l.parked = false
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
		e.spilled = false
		for _, l := range e.lanes {
			t.board.rest(l)
		}
		t.acc.wanted = t.acc.wanted || t.isolating
		return
	}
	e.drained = c.After > 0 || !idle
}

func (t *tenure) startClaim(c Claim, then func(r Claimed, now time.Time)) {
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
