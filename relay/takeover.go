package relay

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// takeOver learns what former owners left in the ledger.
func (t *tenure) takeOver(ctx context.Context) error {
	t.observer.Noticed(t.Name, Notice{Kind: NoticeLeaseTaken})
	t.log.Info("took the lease", "epoch", t.id.Epoch, "position", t.lease.Position, "unclean", t.lease.Unclean)
	r, err := t.recoverLedger(ctx)
	if err != nil {
		t.err = err
		return err
	}
	t.above = make(map[int64]struct{}, len(r.Above))
	for _, seq := range r.Above {
		t.above[seq] = struct{}{}
		t.caughtUp = max(t.caughtUp, seq)
	}
	t.behind = true
	for _, id := range r.Lanes {
		t.board.holdFor(t.board.lane(t.board.endpoint(id.Endpoint), id.Key), 0)
	}
	t.blind = r.LanesCut
	for _, name := range r.Endpoints {
		t.board.endpoint(name).spilled = true
	}
	if r.NextDue >= 0 {
		t.dueAt = time.Now().Add(r.NextDue)
	}
	if t.isolating {
		t.isolate(r.Publishing)
	}
	return nil
}

// errStopped ends a tenure that was asked to stop before it knew what former owners left.
var errStopped = errors.New("stopped before anything was done")

// recoverLedger tries until most of the lease has run out. Its errors are ErrLeaseLost, after which another try follows when the rest
// has run out as well, and errStopped.
func (t *tenure) recoverLedger(ctx context.Context) (Recovered, error) {
	for {
		left := t.ttl*2/3 - time.Since(t.renewed)
		switch {
		case ctx.Err() != nil:
			return Recovered{}, errStopped
		case left <= 0:
			return Recovered{}, ErrLeaseLost
		}
		once, cancel := context.WithTimeout(ctx, left)
		r, err := t.store.Recover(once, t.id, 2*t.MaxHeldLanes)
		cancel()
		switch {
		case err == nil:
			return r, nil
		case errors.Is(err, ErrLeaseLost):
			return r, ErrLeaseLost
		case ctx.Err() != nil: // the stop, and no failure
			continue
		}
		t.report(fmt.Errorf("recover what the former owner left: %w", err))
		sleep(ctx, t.writeFails.next())
	}
}

// isolate prepares to try the suspects one by one: all that lies up to in_flight_to is parked, then claimed and
// delivered alone, the attempt being written before it is made. When the former owner was isolating
// already, what it had in flight is what killed it.
func (t *tenure) isolate(publishing []int64) {
	if t.lease.CrashCount > IsolateAfter {
		t.culprits = make(map[int64]struct{}, len(publishing))
		for _, seq := range publishing {
			t.culprits[seq] = struct{}{}
			t.hunting = 100
		}
	}
	t.board.endpoint("") // exists in any case, so that isolation ends when it was looked at
	t.observer.Noticed(t.Name, Notice{Kind: NoticeIsolating, Count: t.lease.CrashCount})
	t.log.Error("the relay died again and again without getting on: trying what it had in hand one by one",
		"crash_count", t.lease.CrashCount, "from", t.lease.Position, "to", t.suspects)
}

// leaveIsolation ends it when every suspect was tried.
func (t *tenure) leaveIsolation() {
	if !t.isolating || t.cursor.Next() < t.suspects || t.board.inMemory > 0 {
		return
	}
	for _, e := range t.board.endpoints {
		if e.spilled && e.breaker.state == closed {
			return
		}
	}
	t.isolating = false
	t.acc.wanted = true
	t.log.Info("every suspect was tried: going on as usual")
}

// isCulprit finds a delivery that killed the process: alone in flight while suspects were tried one by one, or charged
// with the last of all its attempts by a crash.
func (t *tenure) isCulprit(open Open) bool {
	_, found := t.culprits[open.Event.Seq]
	return found || t.isSpent(open) && open.LastErrorCode == CodeTakeover
}

// isSpent tells whether a claimed delivery has no attempt left.
func (t *tenure) isSpent(open Open) bool { return open.Attempts >= t.Retry.MaxAttempts }

// giveUp quarantines a delivery that has failed often enough without another attempt: max_attempts was more when it failed last.
func (t *tenure) giveUp(d *delivery, open Open) {
	v := t.policy.exhausted(verdict{attempts: d.before, code: open.LastErrorCode})
	if t.CodeOnly {
		v.message = ""
	}
	t.putAway(d, v)
}

func (t *tenure) quarantineCulprit(d *delivery) {
	delete(t.culprits, d.Seq)
	v := verdict{status: StatusQuarantined, attempts: d.before, code: CodeCrashedRelay,
		message: "the relay's process ended each time this was delivered"}
	t.log.Error("quarantined a delivery that ended the process", "seq", d.Seq, "event_id", d.ID)
	t.putAway(d, v)
}
