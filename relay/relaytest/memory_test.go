package relaytest_test

import (
	"slices"
	"testing"

	"github.com/pillarbox-dev/pillarbox/relay"
	"github.com/pillarbox-dev/pillarbox/relay/relaytest"
)

// Numbers commit in any order, get lost, and the horizon proves which are.
func TestMemoryCommitsInAnyOrder(t *testing.T) {
	m := &relaytest.Memory{}
	early, late := m.Begin(), m.Begin()
	early.TakeXID()
	late.Insert(relay.Event{Topic: "t"}) // 1
	lost := early.Savepoint()
	early.Insert(relay.Event{Topic: "t"}) // 2
	early.RollbackTo(lost)
	early.Insert(relay.Event{Topic: "t"}) // 3
	read := func(after int64, gaps ...relay.Range) relay.Page {
		t.Helper()
		page, err := m.Read(t.Context(), relay.Query{After: after, Gaps: gaps, Limit: 10, MaxBytes: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		return page
	}

	if page := read(0); len(page.Events) != 0 || page.Horizon != 1 {
		t.Errorf("before any commit: read %v with horizon %d, want nothing with 1", page.Seqs, page.Horizon)
	}
	early.Commit()
	if page := read(0); !slices.Equal(page.Seqs, []int64{3}) || page.Horizon != 2 {
		t.Errorf("after the first commit: read %v with horizon %d, want [3] with 2", page.Seqs, page.Horizon)
	}
	late.Commit()
	page := read(3, relay.Range{First: 1, Last: 2})
	if !slices.Equal(page.GapSeqs, []int64{1}) || page.Horizon != 3 {
		t.Errorf("after the late commit: read %v out of the gaps with horizon %d, want [1] with 3", page.GapSeqs, page.Horizon)
	}
}
