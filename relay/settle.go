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
		a.InFlightTo = max(t.cursor.Next()+int64(t.MaxInFlight), t.handed) // what a former owner sent stays known until it is passed
		t.unwritten = slices.DeleteFunc(t.unwritten, func(seq int64) bool { return seq <= a.Position })
		if t.finalSettle {
			a.InFlightTo = max(a.Position, t.handed) // not all of it may have been sent again
			for _, seq := range t.unwritten {        // or the next owner would send them again
				a.Published = append(a.Published, Receipt{Seq: seq})
			}
		}
		a.mark = t.cursor.Mark()
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
			if t.acc.Pause.Reason == "" && t.pause != r.Pause {
				t.pause = r.Pause
				t.log.Info("pause changed", "paused", r.Pause.Reason != "", "reason", r.Pause.Reason, "by", r.Pause.By)
			}
			if t.asleep && t.pause.Reason != "" { // it reads nothing now: producers would wake it in vain, each at its commit
				t.asleep, t.acc.wanted = false, true
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
