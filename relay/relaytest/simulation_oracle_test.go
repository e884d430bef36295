package relaytest_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pillarbox-dev/pillarbox/relay"
	"github.com/pillarbox-dev/pillarbox/relay/relaytest"
)

// track is what the oracle knows of an event on its way to one destination.
type track struct {
	tries    int // by the far side
	accepted int
	// published, rejected and quarantined: the relay was told so, or decided so, and lived to know it.
	published, rejected, quarantined bool
	everRejected                     bool
	discarded                        bool
	again                            bool              // an operator set it going again out of its lane: it has lost its place
	suspected                        bool              // a relay said that it may have arrived more than once
	charged                          int               // attempts that may be charged
	lost                             int               // how often it was in the hands of an owner that ended without a word
	routed                           map[string]string // endpoint, by the owner that was told so
}

// laneTime is a lane in the time of one owner.
type laneTime struct {
	destination   string
	epoch         int64
	endpoint, key string
}

func (w *world) track(f *fact, destination string) *track {
	t := f.tracks[destination]
	if t == nil {
		t = &track{}
		f.tracks[destination] = t
	}
	return t
}

// trackOf returns the track of a number, nil when there is no such event.
func (w *world) trackOf(destination string, seq int64) *track {
	if f := w.numbers[seq]; f != nil {
		return w.track(f, destination)
	}
	return nil
}

func (w *world) classOf(id string) class {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.facts[id].class
}

func (w *world) attempts(far *farSide, id string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.track(w.facts[id], far.name).tries
}

// routed is the answer of a destination that is asked for the endpoint of an event.
func (w *world) routed(p *process, far *farSide, id string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := w.facts[id]
	endpoint := far.route(f.key, id)
	t := w.track(f, far.name)
	if before := t.routed[p.owner]; before != "" && before != endpoint {
		w.reached["routed anew"]++
	}
	if t.routed == nil {
		t.routed = map[string]string{}
	}
	t.routed[p.owner] = endpoint
	return endpoint
}

// laneOf is the endpoint that an event goes to, or waits for, in the hands of a process: that of its row, or the answer to the process.
func (w *world) laneOf(p *process, far *farSide, f *fact) string {
	if row, found := w.store.Delivery(far.name, f.seq); found && !final(row.Status) {
		return row.Endpoint
	}
	if endpoint := w.track(f, far.name).routed[p.owner]; endpoint != "" {
		return endpoint
	}
	return far.route(f.key, f.id)
}

// started is told of a call that a relay starts, and judges whether it may. It returns the epoch of the lease.
func (w *world) started(p *process, far *farSide, batch []relay.Delivery) (epoch int64) {
	if p.isDead() {
		return 0 // nothing of it gets anywhere
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	var shard relay.Shard
	lanes := map[string]int{}
	for i := range batch {
		d := &batch[i]
		f := w.facts[d.ID]
		if f == nil || !f.committed {
			w.violateLocked(d.ID, "no false event: %s was delivered to %s but never committed", d.ID, far.name)
			continue
		}
		if of := w.shardOf(far.name, f); epoch == 0 || of != shard {
			shard, epoch = of, w.judgeOwner(p, far, of, epoch, now)
		}
		w.judgeStart(p, far, f, d, batch[:i], now)
		lanes[f.key]++
		w.holds(far.name, p.owner, f.seq)
	}
	if n := len(batch); n > 1 {
		if lanes[""] == 0 && len(lanes) == 1 {
			w.reached["batch of one lane"]++
		} else {
			w.reached["batch of many lanes"]++
		}
	}
	return epoch
}

// judgeOwner judges whether the process may start deliveries of a shard, and returns the epoch of its lease. before is that of
// deliveries of another shard in the same call.
func (w *world) judgeOwner(p *process, far *farSide, shard relay.Shard, before int64, now time.Time) (epoch int64) {
	cursor, _ := w.store.ShardCursor(far.name, shard)
	if cursor.Owner != p.owner || !cursor.ExpiresAt.After(now) {
		w.violateLocked("", "no two owners: %s started a delivery to %s, shard %s, while the lease was %s's",
			p.owner, far.name, shard, cursor.Owner)
	}
	if before != 0 {
		w.violateLocked("", "each event in one shard: a call to %s holds some of several", far.name)
	}
	if !shard.Whole() {
		w.reached["sharded"]++
	}
	return cursor.Epoch
}

// judgeStart judges the start of one delivery; before are those before it in the same call.
func (w *world) judgeStart(p *process, far *farSide, f *fact, d *relay.Delivery, before []relay.Delivery, now time.Time) {
	t := w.track(f, far.name)
	w.noteLocked(f.id, "%s starts %d (%s) attempt %d to %s %s, class %d",
		p.owner, f.seq, f.key, d.Attempt, far.name, d.Endpoint, f.class)
	switch {
	case string(d.Payload) != f.id || d.Seq != f.seq || d.Topic != f.topic:
		w.violateLocked(f.id, "bytes as they are: %s arrived at %s as %+v", f.id, far.name, *d.Event)
	case !far.topics.Match(f.topic):
		w.violateLocked(f.id, "only what is wanted: %s with topic %s was delivered to %s", f.id, f.topic, far.name)
	case far.contracts && f.class == breach:
		w.violateLocked(f.id, "no breach of contract: %s was delivered to %s", f.id, far.name)
	case now.Before(f.available):
		w.violateLocked(f.id, "not before it is available: %s was delivered to %s %v early", f.id, far.name, f.available.Sub(now))
	}
	t.suspected = t.suspected || d.PossibleDuplicate
	row, found := w.store.Delivery(far.name, f.seq)
	if found && (final(row.Status) || row.Status == relay.StatusQuarantined) {
		w.violateLocked(f.id, "duplicates only of what was in flight: %s was delivered to %s again after it was %s",
			f.id, far.name, row.Status)
	}
	if t.discarded {
		w.violateLocked(f.id, "what an operator discarded stays so: %s was delivered to %s", f.id, far.name)
	}
	if f.key == "" || t.again {
		return
	}
	for _, earlier := range w.lanes[f.key] {
		if earlier.seq >= f.seq {
			break
		}
		inCall := slices.ContainsFunc(before, func(b relay.Delivery) bool { return b.ID == earlier.id })
		if far.topics.Match(earlier.topic) && !inCall && !w.passable(far, earlier) && w.laneOf(p, far, earlier) == d.Endpoint {
			w.violateLocked(f.id, "order per key: %s (%d) was started to %s before %s (%d)",
				f.id, f.seq, far.name, earlier.id, earlier.seq)
			w.noteLocked(earlier.id, "it is the earlier one: %+v", *w.track(earlier, far.name))
		}
	}
}

// passable tells whether later events of its lane may be started: it is published, quarantined or discarded.
func (w *world) passable(far *farSide, f *fact) bool {
	t := w.track(f, far.name)
	hold := far.config.OnQuarantine == relay.Hold
	if t.published || t.discarded || t.again || !hold && (t.rejected || t.quarantined) {
		return true
	}
	row, found := w.store.Delivery(far.name, f.seq)
	return found && (final(row.Status) || !hold && row.Status == relay.StatusQuarantined)
}

func final(s relay.Status) bool { return s == relay.StatusPublished || s == relay.StatusDiscarded }

// trying is told of each attempt when it is made, under which lease its call was started, and returns which one it is.
func (w *world) trying(p *process, far *farSide, d *relay.Delivery, epoch int64) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := w.facts[d.ID]
	t := w.track(f, far.name)
	t.tries++
	w.tries++
	if cursor, _ := w.store.ShardCursor(far.name, w.shardOf(far.name, f)); cursor.Owner != p.owner {
		w.reached["zombie arrives"]++
	}
	if lane := (laneTime{far.name, epoch, d.Endpoint, f.key}); f.key != "" && !t.again && epoch != 0 {
		if latest := w.latest[lane]; f.seq < latest {
			w.violateLocked(f.id, "order per key: %s (%d) was tried at %s after %d, by the same owner", f.id, f.seq, far.name, latest)
		}
		w.latest[lane] = f.seq
	}
	// In a call of several the earlier ones have their answers by now, but the relay has not: they are judged here.
	if f.key != "" && !t.again && far.config.OnQuarantine == relay.Hold {
		for _, earlier := range w.lanes[f.key] {
			if earlier.seq >= f.seq {
				break
			}
			if e := w.track(earlier, far.name); e.everRejected && far.topics.Match(earlier.topic) && !w.passable(far, earlier) &&
				w.laneOf(p, far, earlier) == d.Endpoint {
				w.violateLocked(f.id, "a quarantined event holds its lane: %s (%d) was tried at %s behind %s (%d)",
					f.id, f.seq, far.name, earlier.id, earlier.seq)
			}
		}
	}
	return t.tries
}

// accept is told that the far side has the event.
func (w *world) accept(p *process, far *farSide, d *relay.Delivery) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.track(w.facts[d.ID], far.name)
	if t.accepted++; t.accepted > 1 {
		w.duplicates[far.name]++
		w.reached["duplicate"]++
	}
	w.noteLocked(d.ID, "%s accepts it from %s", far.name, p.owner)
}

// answered is told of the outcomes that a relay gets.
func (w *world) answered(p *process, far *farSide, batch []relay.Delivery, outcomes []relay.Outcome) {
	if p.isDead() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, d := range batch[len(outcomes):] {
		t := w.track(w.facts[d.ID], far.name)
		t.charged++
		t.suspected = true
	}
	for i, o := range outcomes {
		f := w.facts[batch[i].ID]
		if f == nil {
			continue
		}
		t := w.track(f, far.name)
		w.noteLocked(f.id, "%s answers %v %s to %s", far.name, o.Kind, o.Code, p.owner)
		if o.Uncertain {
			w.reached["uncertain"]++
		}
		switch o.Kind {
		case relay.Published:
			t.published = true
			t.charged++
		case relay.Reject:
			t.rejected, t.everRejected = true, true
			w.reached["rejected"]++
			t.charged++
		case relay.Retry:
			t.charged++
		case relay.Released:
			w.reached["released delivery"]++
		}
	}
}

// decided is told what a relay makes of outcomes.
func (w *world) decided(destination string, attempts []relay.Attempt) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range attempts {
		f := w.facts[a.Delivery.ID]
		if f == nil {
			continue
		}
		t := w.track(f, destination)
		t.suspected = t.suspected || a.Outcome.Uncertain
		t.quarantined = t.quarantined || a.Decision == relay.StatusQuarantined
	}
}

// stoppedCleanly judges the end of a process that was asked to stop. A lease that it had lost by time is free already.
func (w *world) stoppedCleanly(p *process) {
	if p.isDead() {
		return
	}
	for _, e := range w.plan.ends {
		for shard, c := range w.store.Cursors(e.name) {
			if c.Owner == p.owner && c.ExpiresAt.After(time.Now()) {
				w.violate("", "a clean stop frees the lease: %s still has that of %s, shard %d: %+v", p.owner, e.name, shard, c)
			}
		}
	}
}

// wanted calls f for each committed event that a destination wants.
func (w *world) wanted(f func(e endPlan, fact *fact, row relaytest.DeliveryRow, found bool, cursor relaytest.CursorRow)) {
	for _, e := range w.plan.ends {
		cursors := w.store.Cursors(e.name)
		rows := map[int64]relaytest.DeliveryRow{}
		for _, row := range w.store.Deliveries(e.name) {
			rows[row.Seq] = row
		}
		for _, fact := range w.facts {
			if fact.committed && e.topics.Match(fact.topic) {
				row, found := rows[fact.seq]
				var cursor relaytest.CursorRow
				if n := len(cursors); n > 0 {
					cursor = cursors[relay.ShardOf(fact.key, fact.seq, n)]
				}
				f(e, fact, row, found, cursor)
			}
		}
	}
}

// unsettled describes what still has to happen; "" when all is settled.
func (w *world) unsettled() (open string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wanted(func(e endPlan, f *fact, row relaytest.DeliveryRow, found bool, cursor relaytest.CursorRow) {
		if !isSettled(e, f, row, found, cursor) {
			open = fmt.Sprintf("%s (%d, key %q, class %d) is %q at %s, which stands at %d: %+v",
				f.id, f.seq, f.key, f.class, row.Status, e.name, cursor.Position, row)
		}
	})
	return open
}

func isSettled(e endPlan, f *fact, row relaytest.DeliveryRow, found bool, c relaytest.CursorRow) bool {
	if !found { // without a ledger the cursor says it
		return e.noLedger && f.seq <= c.Position &&
			!slices.ContainsFunc(c.Gaps, func(r relay.Range) bool { return r.First <= f.seq && f.seq <= r.Last })
	}
	switch row.Status {
	case relay.StatusPublished, relay.StatusDiscarded:
		return true
	case relay.StatusQuarantined:
		return !row.OpenLane
	}
	return false
}

// settled judges the end of the run.
func (w *world) settled() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.violations) > 0 {
		return // it was broken off
	}
	w.wanted(func(e endPlan, f *fact, row relaytest.DeliveryRow, found bool, _ relaytest.CursorRow) {
		if !found {
			w.reached["no ledger"]++
			row.Status = relay.StatusPublished // isSettled saw to it
		}
		w.judgeEnd(e, f, w.track(f, e.name), row)
	})
	for _, e := range w.plan.ends {
		if w.duplicates[e.name] > w.noticed[e.name] {
			var twice []string
			for _, f := range w.facts {
				if t := w.track(f, e.name); t.accepted > 1 {
					twice = append(twice, f.id)
				}
			}
			w.violateLocked("", "duplicates are never silent: %s got %d, the relays noticed %d: %s ", e.name, w.duplicates[e.name],
				w.noticed[e.name], strings.Join(twice, " "))
		}
	}
}

func (w *world) judgeEnd(e endPlan, f *fact, t *track, row relaytest.DeliveryRow) {
	bad := func(format string, args ...any) {
		w.violateLocked(f.id, "%s at %s: %s: %+v, %+v", f.id, e.name, fmt.Sprintf(format, args...), row, *t)
	}
	if row.Attempts > t.charged+t.lost {
		bad("an outage charges nothing: %d attempts on record", row.Attempts)
	}
	if t.accepted > 1 && !t.suspected && !t.again {
		bad("duplicates are never silent: it arrived %d times", t.accepted)
	}
	switch row.Status {
	case relay.StatusPublished:
		if t.accepted == 0 {
			bad("no lost event: it is on record as published but never arrived")
		}
	case relay.StatusDiscarded:
		if !t.discarded {
			bad("no lost event: nobody discarded it")
		}
	case relay.StatusQuarantined:
		switch row.ErrorCode {
		case "":
			bad("no lost event: it is quarantined without a reason")
		case relay.CodeExhausted:
			w.reached["exhausted"]++
			if t.charged+t.lost < e.leastAttempts() {
				bad("an outage charges nothing: it is EXHAUSTED")
			}
		case relay.CodeCrashedRelay:
			w.reached["crashed relay"]++
			if f.class != killer && t.lost == 0 && !e.varies { // what was put back unsent keeps TAKEOVER over a lower limit
				bad("one poison event harms nobody else: no process ended while it was in hand")
			}
		case codeBreach:
			if !e.contracts || f.class != breach {
				bad("no lost event: it keeps its contract")
			}
		default:
			if !t.everRejected {
				bad("no lost event: nobody rejected it")
			}
		}
	}
}
