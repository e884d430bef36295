package ops

import (
	"context"
	"database/sql"
	"encoding/json"
	"slices"
	"time"
)

// How much a heartbeat counts, in chunks, and what it remembers.
const (
	tallyChunk  = 100_000
	tallyChunks = 10
	tallyGaps   = 1_000 // ranges
	tallyNames  = 200   // topics, and types
	tallyOthers = "(others)"
)

// beatState is what the next heartbeat goes on from.
type beatState struct {
	End time.Time `json:"end"` // of the last interval
	Seq int64     `json:"seq"` // everything up to here was counted, but for the gaps
	// Gaps are numbers that were not visible when they were passed. As for a relay's cursor, each may still commit: see
	// relay.Cursor. A gap is dead when every transaction has ended that had a number when it was noticed.
	Gaps []beatGap `json:"gaps,omitempty"`
}

type beatGap struct {
	First int64 `json:"first"`
	Last  int64 `json:"last"`
	// Bound is the number of a transaction that began after the gap was noticed, and so is above the gap's own; 0: none yet.
	Bound int64 `json:"bound,omitempty"`
}

// followLog notices that the log's numbers went back, since its table was truncated with RESTART IDENTITY or restored: all of them would
// be counted already, and the heartbeats say that there is nothing to report. Counted is then what was created since the last interval.
func (b *beater) followLog(ctx context.Context, tx *sql.Tx, s *beatState) error {
	var handedOut, last int64
	if err := tx.QueryRowContext(ctx, b.queries.last).Scan(&handedOut); err != nil || handedOut >= s.Seq {
		return err
	}
	if err := tx.QueryRowContext(ctx, b.Ops.queries.seqAt.last).Scan(&last); err != nil {
		return err
	}
	first, err := b.createdFrom(ctx, tx, s.End, last)
	s.Seq, s.Gaps = first-1, nil
	return err
}

// tally counts what was committed since the last heartbeat and moves the state on.
func (b *beater) tally(ctx context.Context, tx *sql.Tx, s *beatState, c *HeartbeatCounts) error {
	old := s.Gaps
	var fresh []beatGap
	for chunk := range tallyChunks {
		ask := old
		if chunk > 0 {
			ask = nil
		}
		t, err := b.look(ctx, tx, s.Seq, ask, c)
		if err != nil {
			return err
		}
		if chunk == 0 {
			old = settleGaps(old, t)
			c.AtLeast = c.AtLeast || len(t.late) == tallyChunk
		}
		fresh = append(fresh, t.gaps...)
		s.Seq = t.end
		if t.rows < tallyChunk {
			break
		}
		if chunk == tallyChunks-1 {
			c.AtLeast = true
			if err := tx.QueryRowContext(ctx, b.queries.end).Scan(&s.Seq); err != nil {
				return err
			}
		}
	}
	s.Gaps = slices.Concat(old, fresh)
	if extra := len(s.Gaps) - tallyGaps; extra > 0 {
		c.AtLeast = true
		s.Gaps = slices.Clone(s.Gaps[extra:])
	}
	return nil
}

// tallied is what one look has found.
type tallied struct {
	late      []int64   // numbers in old gaps, ascending
	gaps      []beatGap // new ones
	end, rows int64
	horizon   int64 // every transaction below it has ended
	own       int64 // this transaction
}

func (b *beater) look(ctx context.Context, tx *sql.Tx, after int64, gaps []beatGap, c *HeartbeatCounts) (t tallied, err error) {
	pairs := make([][2]int64, len(gaps))
	for i, g := range gaps {
		pairs[i] = [2]int64{g.First, g.Last}
	}
	text, err := json.Marshal(pairs)
	if err != nil {
		return t, err
	}
	err = each(ctx, tx, b.queries.count, []any{after, tallyChunk, string(text)}, func(scan func(...any) error) error {
		var kind, topic, event string
		var x, y int64
		if err := scan(&kind, &topic, &event, &x, &y); err != nil {
			return err
		}
		switch kind {
		case "count":
			b.add(c, topic, event, x)
		case "late":
			t.late = append(t.late, x)
			if topic != "" { // "" is a heartbeat
				b.add(c, topic, event, 1)
			}
		case "gap":
			t.gaps = append(t.gaps, beatGap{First: x, Last: y})
		case "end":
			t.end, t.rows = x, y
		case "horizon":
			t.horizon, t.own = x, y
		}
		return nil
	})
	slices.Sort(t.late)
	return t, err
}

func (b *beater) add(c *HeartbeatCounts, topic, event string, n int64) {
	if !b.Topics.Match(topic) {
		return
	}
	c.Count += n
	addName(c.ByTopic, topic, n)
	addName(c.ByType, event, n)
}

func addName(counts map[string]int64, name string, n int64) {
	if _, known := counts[name]; !known && len(counts) >= tallyNames {
		name = tallyOthers
	}
	counts[name] += n
}

// settleGaps takes out of the gaps what has turned visible, drops what is dead, and binds the rest.
func settleGaps(gaps []beatGap, t tallied) (left []beatGap) {
	late, all := t.late, len(t.late) < tallyChunk // else a number that was not seen may have been cut off
	keep := func(first, last, bound int64) {
		dead := all && bound > 0 && t.horizon > bound && bound <= t.own // a bound above our own is of another cluster
		if first > last || dead {
			return
		}
		if bound == 0 || bound > t.own {
			bound = t.own
		}
		left = append(left, beatGap{First: first, Last: last, Bound: bound})
	}
	for _, g := range gaps {
		first := g.First
		for len(late) > 0 && late[0] <= g.Last {
			keep(first, late[0]-1, g.Bound)
			first, late = late[0]+1, late[1:]
		}
		keep(first, g.Last, g.Bound)
	}
	return left
}
