package crashtest

import "slices"

// drained waits until everything that was committed has arrived.
func (b *bench) drained() {
	b.Helper()
	committed := b.committed()
	if len(committed) == 0 {
		b.Fatal("nothing was committed: the test is about nothing")
	}
	eventually(b.T, "all that was committed has arrived", func() bool {
		for len(committed) > 0 && b.receiver.has(committed[0]) { // each is asked for once, for there may be many
			committed = committed[1:]
		}
		return len(committed) == 0
	})
}

// verdict compares what was committed with what has arrived, and returns how much of it arrived twice. wrecks are what the
// relays that died left, in order.
func (b *bench) verdict(wrecks ...wreck) (repeats int) {
	b.Helper()
	committed, arrivals := b.committed(), b.receiver.all()
	b.nothingFalse(committed, arrivals)
	b.inOrder(arrivals)
	repeats = b.repeatsWereInFlight(arrivals, wrecks)
	b.Logf("%d events, %d of them sent twice", len(committed), repeats)

	// What has arrived is settled, and what is settled has arrived.
	settled := b.texts("select e.event_id from outbox_delivery d join outbox_event e on e.seq = d.seq where d.status = 'PUBLISHED'")
	slices.Sort(settled)
	slices.Sort(committed)
	if !slices.Equal(settled, committed) {
		b.Errorf("%d deliveries are PUBLISHED, want the %d events that were committed", len(settled), len(committed))
	}
	if other := b.texts("select status from outbox_delivery where status <> 'PUBLISHED'"); len(other) > 0 {
		b.Errorf("%d deliveries are not PUBLISHED: %.5v", len(other), other)
	}
	return repeats
}

func (b *bench) nothingFalse(committed []string, arrivals []arrival) {
	b.Helper()
	known := make(map[string]bool, len(committed))
	for _, id := range committed {
		known[id] = true
	}
	arrived := map[string]bool{}
	for _, a := range arrivals {
		arrived[a.ID] = true
		if !known[a.ID] {
			b.Errorf("%s arrived, but its transaction was not committed", a.ID)
		}
	}
	for _, id := range committed {
		if !arrived[id] {
			b.Errorf("%s was committed, but has not arrived", id)
		}
	}
}

// inOrder checks that the events of a key came in the order of their transactions: over all relays for the first arrival of
// each, and for all arrivals from one relay.
func (b *bench) inOrder(arrivals []arrival) {
	b.Helper()
	first := map[string]bool{}
	latest := map[string]string{}
	check := func(scope string, a arrival) {
		if a.ID < latest[scope+a.Key] { // ids are built so that they sort
			b.Errorf("%s arrived after %s (%s)", a.ID, latest[scope+a.Key], scope)
		}
		latest[scope+a.Key] = a.ID
	}
	for _, a := range arrivals {
		if !b.repeats {
			check("from "+a.owner+" ", a)
		}
		if !first[a.ID] {
			first[a.ID] = true
			check("for the first time ", a)
		}
	}
}

// repeatsWereInFlight checks what arrived twice: each relay that died in between must have had it in flight, and the one that
// sent it again must have said so.
func (b *bench) repeatsWereInFlight(arrivals []arrival, wrecks []wreck) (repeats int) {
	b.Helper()
	index := func(owner string) int {
		i := slices.IndexFunc(wrecks, func(w wreck) bool { return w.owner == owner })
		if i < 0 {
			return len(wrecks)
		}
		return i
	}
	last := map[string]arrival{}
	for _, a := range arrivals {
		before, again := last[a.ID]
		last[a.ID] = a
		if !again {
			continue
		}
		repeats++
		if before.owner == a.owner && !b.repeats {
			b.Errorf("%s sent %s twice", a.owner, a.ID)
			continue
		}
		from, to := index(before.owner), index(a.owner)
		if from > to {
			b.Errorf("%s was sent by %s after %s had taken over", a.ID, a.owner, before.owner)
			continue
		}
		for _, w := range wrecks[from:to] {
			if !w.mayRepeat(a.Seq) {
				b.Errorf("%s (%d) was sent by %s and again by %s, but was not in flight: position %d, in flight to %d, row %+v",
					a.ID, a.Seq, before.owner, a.owner, w.position, w.inFlightTo, w.rows[a.Seq])
			}
		}
		if !a.PossibleDuplicate {
			b.Errorf("%s (%d) was sent by %s and again by %s, which did not call it a possible duplicate", a.ID, a.Seq, before.owner, a.owner)
		}
	}
	return repeats
}
