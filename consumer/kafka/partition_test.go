package kafka

import (
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// fakeFetcher writes down what a partition asks for.
type fakeFetcher struct {
	asked  []string
	marked int64
}

func (f *fakeFetcher) PauseFetchPartitions(map[string][]int32) map[string][]int32 {
	f.asked = append(f.asked, "pause")
	return nil
}
func (f *fakeFetcher) ResumeFetchPartitions(map[string][]int32) { f.asked = append(f.asked, "resume") }
func (f *fakeFetcher) MarkCommitRecords(r ...*kgo.Record)       { f.marked = r[0].Offset + 1 }

func records(from, to int64, size int) (all []*kgo.Record) {
	for offset := from; offset < to; offset++ {
		all = append(all, &kgo.Record{Topic: "t", Offset: offset, Value: make([]byte, size)})
	}
	return all
}

func (f *fakeFetcher) want(t *testing.T, when string, want ...string) {
	t.Helper()
	if !slices.Equal(f.asked, want) {
		t.Errorf("%s: asked for %v, want %v", when, f.asked, want)
	}
}

func TestQueuePausesItsPartition(t *testing.T) {
	f := &fakeFetcher{}
	p := newPartition(place{"t", 0}, f, 10, 1<<20)
	p.put(records(100, 109, 1), 200)
	f.want(t, "not full")
	p.put(records(109, 112, 1), 201)
	f.want(t, "full", "pause")
	p.settle(6)
	f.want(t, "6 of 10", "pause")
	p.settle(1)
	f.want(t, "half empty", "pause", "resume")
	if s := p.stats(); s.Next != 107 || s.End != 201 || s.Lag != 94 || s.Queued != 5 || f.marked != 107 {
		t.Errorf("got %+v, marked %d", s, f.marked)
	}
	p.block("HANDLER")
	f.want(t, "blocked", "pause", "resume", "pause")
	p.settle(5)
	f.want(t, "empty, and blocked", "pause", "resume", "pause")
	p.block("")
	f.want(t, "free", "pause", "resume", "pause", "resume")
	p.put(records(112, 114, 1<<19), 201)
	f.want(t, "full of bytes", "pause", "resume", "pause", "resume", "pause")
}

func TestQueueEnds(t *testing.T) {
	f := &fakeFetcher{}
	p := newPartition(place{"t", 0}, f, 10, 1<<20)
	p.put(records(0, 3, 1), 3)
	if got := p.take(2); len(got) != 2 || got[0].Offset != 0 || got[1].Offset != 1 {
		t.Errorf("took %v", got)
	}
	p.settle(2)
	p.close()
	p.put(records(3, 20, 1), 20)
	if got := p.take(2); len(got) > 0 {
		t.Errorf("a closed queue gave %v", got)
	}
	p.abandon()
	p.settle(1)
	if f.marked != 2 {
		t.Errorf("an abandoned partition marked %d, want 2", f.marked)
	}
	f.want(t, "closed")

	empty := newPartition(place{"t", 1}, f, 10, 1<<20)
	go func() {
		time.Sleep(10 * time.Millisecond)
		empty.close()
	}()
	if got := empty.take(1); len(got) > 0 {
		t.Errorf("an empty queue gave %v", got)
	}
}
