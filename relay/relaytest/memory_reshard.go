package relaytest

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// Reshard divides a destination into another number of shards, as ops/postgres/reshard.sql does. It is refused while a relay has
// the lease of a shard.
func (m *Memory) Reshard(destination string, shards int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.destinations[destination]
	if d == nil {
		return fmt.Errorf("%s has no cursor", destination)
	}
	now := time.Now()
	begin := CursorRow{Position: d.cursors[0].Position, Topics: d.cursors[0].Topics, ExpiresAt: now}
	inFlightTo := int64(0)
	for _, c := range d.cursors {
		if c.Owner != "" && c.ExpiresAt.After(now) {
			return fmt.Errorf("the relay %s works on %s", c.Owner, destination)
		}
		begin.Position = min(begin.Position, c.Position)
		if c.InFlightTo > c.Position {
			inFlightTo = max(inFlightTo, c.InFlightTo)
		}
		begin.Owner = max(begin.Owner, c.Owner)
		begin.Epoch = max(begin.Epoch, c.Epoch+1)
		begin.CrashCount = min(max(begin.CrashCount, c.CrashCount), relay.IsolateAfter-1)
		if begin.Pause == (relay.Pause{}) {
			begin.Pause = c.Pause
		}
	}
	begin.InFlightTo = max(inFlightTo, begin.Position)
	gaps := m.owed(d, begin.Position)
	d.cursors = make([]CursorRow, shards)
	for i := range d.cursors {
		begin.Gaps = slices.Clone(gaps)
		d.cursors[i] = begin
	}
	return nil
}

// owed returns the gaps of all shards up to a position, without the numbers that have a row by now.
func (m *Memory) owed(d *destination, position int64) (owed []relay.Range) {
	var gaps []relay.Range
	for _, c := range d.cursors {
		gaps = append(gaps, c.Gaps...)
	}
	slices.SortFunc(gaps, func(a, b relay.Range) int { return cmp.Compare(a.First, b.First) })
	passed := int64(0) // up to here the gaps of one shard or another were looked at
	for _, g := range gaps {
		g = relay.Range{First: max(g.First, passed+1), Last: min(g.Last, position)}
		passed = max(passed, g.Last)
		for i := search(m.log, g.First); i < len(m.log) && m.log[i].Seq <= g.Last; i++ {
			seq := m.log[i].Seq
			if d.rows[seq] == nil {
				continue
			}
			owed = join(owed, relay.Range{First: g.First, Last: seq - 1})
			g.First = seq + 1
		}
		owed = join(owed, g)
	}
	return owed
}

// join adds a range, which may be empty, to those below it; two without a number between them become one.
func join(ranges []relay.Range, r relay.Range) []relay.Range {
	n := len(ranges)
	switch {
	case r.First > r.Last:
		return ranges
	case n > 0 && ranges[n-1].Last+1 == r.First:
		ranges[n-1].Last = r.Last
		return ranges
	}
	return append(ranges, r)
}
