package relaytest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// logReader reads a log to its end as the relay's cursor does, in the simplest way that loses nothing: one gap is one
// number, and every gap is looked at in each read.
type logReader struct {
	position int64
	gaps     map[int64]uint64 // with the bound above which the number is lost; 0: none yet
	events   []*relay.Event
	lost     int
}

// next reads a page and tells whether it found anything. The settle must take its bound after the read.
func (r *logReader) next(read func(relay.Query) relay.Page, bound func() uint64) bool {
	var gaps []relay.Range
	for _, seq := range slices.Sorted(maps.Keys(r.gaps)) {
		gaps = append(gaps, relay.Range{First: seq, Last: seq})
	}
	page := read(relay.Query{After: r.position, Gaps: gaps, Limit: 50})
	r.events = append(r.events, page.Events...)
	for _, seq := range page.GapSeqs {
		delete(r.gaps, seq)
	}
	for seq, bound := range r.gaps {
		if !page.GapsCut && bound != 0 && page.Horizon > bound {
			delete(r.gaps, seq)
			r.lost++
		}
	}
	for _, seq := range page.Seqs {
		for missing := r.position + 1; missing < seq; missing++ {
			r.gaps[missing] = 0
		}
		r.position = seq
	}
	x := bound()
	for seq, bound := range r.gaps {
		if bound == 0 {
			r.gaps[seq] = x
		}
	}
	return len(page.Seqs)+len(page.GapSeqs) > 0
}

// gapsHostile lets writers commit out of order, roll back and undo savepoints while the log is read. Every committed
// event must be read once; those of one key, whose writers wait for each other, in order.
func gapsHostile(b *storeBench) {
	const writers, keys = 8, 3
	var all hostileLog
	var wg sync.WaitGroup
	var writing atomic.Int32
	var held [keys]sync.Mutex
	for w := range writers {
		writing.Add(1)
		wg.Go(func() {
			defer writing.Add(-1)
			chance := rand.New(rand.NewPCG(uint64(w), 1))
			for i := range 40 {
				key := chance.IntN(keys)
				held[key].Lock()
				all.add(hostileTransaction(b, chance, fmt.Sprintf("%d-%d", w, i), fmt.Sprint("key", key)))
				held[key].Unlock()
			}
		})
	}
	l := b.lease()
	r := logReader{gaps: map[int64]uint64{}}
	for began := time.Now(); ; {
		last := writing.Load() == 0
		found := r.next(b.read, func() uint64 { return b.bound(l) })
		if last && !found && len(r.gaps) == 0 {
			break
		}
		if time.Since(began) > time.Minute {
			b.Errorf("after a minute %d numbers are neither read nor proven lost", len(r.gaps))
			break
		}
	}
	wg.Wait()

	committed, got := all.ids, map[string]int{}
	latest := map[string]int64{}
	for _, e := range r.events {
		got[e.ID]++
		if e.Key != "" && e.Seq < latest[e.Key] {
			b.Errorf("event %d of %s was read after %d", e.Seq, e.Key, latest[e.Key])
		}
		latest[e.Key] = e.Seq
	}
	for _, id := range committed {
		if got[id] != 1 {
			b.Errorf("event %s was committed and read %d times", id, got[id])
		}
		delete(got, id)
	}
	for id := range got {
		b.Errorf("event %s was not committed but read", id)
	}
	if r.lost == 0 {
		b.Error("no number was lost: the producers are not hostile enough")
	}
}

// hostileTransaction inserts some events with the key and some without, and returns the ids of those it committed.
func hostileTransaction(b *storeBench, chance *rand.Rand, id, key string) (committed []string) {
	tx := b.Begin(b).(SavepointProducer)
	insert := func(key string) {
		event := relay.Event{ID: fmt.Sprintf("%s-%d", id, len(committed)), Key: key}
		tx.Insert(b, event)
		committed = append(committed, event.ID)
	}
	insert("")
	time.Sleep(time.Duration(chance.IntN(3)) * time.Millisecond)
	insert(key)
	if chance.IntN(3) == 0 {
		tx.Savepoint(b)
		kept := committed
		insert(key)
		insert("")
		tx.RollbackTo(b)
		committed = kept
	}
	insert(key)
	time.Sleep(time.Duration(chance.IntN(3)) * time.Millisecond)
	if chance.IntN(4) == 0 {
		tx.Rollback(b)
		return nil
	}
	tx.Commit(b)
	return committed
}

// hostileLog collects the ids of what was committed.
type hostileLog struct {
	mu  sync.Mutex
	ids []string
}

func (l *hostileLog) add(ids []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ids = append(l.ids, ids...)
}
