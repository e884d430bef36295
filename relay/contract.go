package relay

import "fmt"

// breaches are the events of a page that do not keep their contract, by number.
type breaches map[int64]*Outcome

// judgeContracts is called on the goroutine that read the events, so that the loop does not wait for it.
func (u *unit) judgeContracts(events []*Event) (found breaches) {
	if u.Contract == nil {
		return nil
	}
	for _, e := range events {
		if o := u.Contract(e); o != nil {
			if found == nil {
				found = breaches{}
			}
			found[e.Seq] = o
		}
	}
	return found
}

func (u *unit) judgeClaimed(claimed []Open) breaches {
	if u.Contract == nil {
		return nil
	}
	events := make([]*Event, 0, len(claimed))
	for _, open := range claimed {
		if open.Status != StatusDiscarded {
			events = append(events, open.Event)
		}
	}
	return u.judgeContracts(events)
}

// tooLong tells that the ledger could not keep the delivery in a lane: the settle that wrote it would fail, with everything else
// in it, whenever it was tried.
func (d *delivery) tooLong() bool {
	return len(d.Key) > MaxKeyLength || len(d.Endpoint) > MaxKeyLength
}

// refuseTooLong quarantines it out of its lane, also where a lane is held: all others of that lane are refused as well.
func (t *tenure) refuseTooLong(d *delivery) {
	d.lane = nil
	t.refuse(d, Outcome{Code: CodeKeyTooLong, Message: fmt.Sprintf("the key has %d bytes and the endpoint's name %d, of %d at most: "+
		"discard it, and write the event again with a shorter one, a hash of it for example", len(d.Key), len(d.Endpoint), MaxKeyLength)})
}

// refuse quarantines a delivery whose event does not keep its contract. No attempt is made, so none is charged.
func (t *tenure) refuse(d *delivery, o Outcome) {
	o.Kind = Reject
	v := t.policy.decide(o, d.before, false, 0)
	v.attempts = d.before
	t.observer.Attempted(t.Name, []Attempt{{Delivery: d.Delivery, Outcome: o, Decision: v.status, Code: v.code, Age: d.age}})
	t.putAway(d, v)
}

// putAway quarantines a delivery that was not tried, and lets its lane go on.
func (t *tenure) putAway(d *delivery, v verdict) {
	t.quarantine(d, v)
	if d.lane != nil {
		t.board.rest(d.lane)
	}
}
