package kafka

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// fetcher is what a partition asks of the client.
type fetcher interface {
	PauseFetchPartitions(map[string][]int32) map[string][]int32
	ResumeFetchPartitions(map[string][]int32)
	MarkCommitRecords(...*kgo.Record)
}

// partition is the queue of a partition, from its assignment to its end. One worker takes from it.
type partition struct {
	place
	client fetcher
	quit   chan struct{}   // closed: nothing more is begun
	ctx    context.Context // ended: what is under way is rolled back
	cancel context.CancelFunc
	done   chan struct{} // closed: the worker has ended
	more   chan struct{} // holds something when the queue may have something

	maxRecords, maxBytes int

	mu        sync.Mutex
	queue     []Message
	bytes     int
	next, end int64
	blocked   string // the code of what the worker waits for
	paused    bool   // nothing is fetched
	closed    bool
	abandoned bool // no offset is committed any more
}

func newPartition(at place, client fetcher, maxRecords, maxBytes int) *partition {
	p := &partition{
		place: at, client: client, quit: make(chan struct{}), done: make(chan struct{}), more: make(chan struct{}, 1),
		maxRecords: maxRecords, maxBytes: maxBytes,
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

// put appends what was fetched. end is the offset after the last that can be read.
func (p *partition) put(records []*kgo.Record, end int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end = max(p.end, end)
	if p.closed || len(records) == 0 {
		return
	}
	if p.next == 0 {
		p.next = records[0].Offset
	}
	for _, record := range records {
		m := newMessage(record)
		p.queue = append(p.queue, m)
		p.bytes += m.size()
	}
	p.pause()
	select {
	case p.more <- struct{}{}:
	default:
	}
}

// take waits for messages and returns at most n, the oldest first; none when there is nothing more to do. They stay in the queue
// until they are settled.
func (p *partition) take(n int) []Message {
	for {
		p.mu.Lock()
		batch := slices.Clone(p.queue[:min(n, len(p.queue))])
		closed := p.closed
		p.mu.Unlock()
		if closed {
			return nil
		}
		if len(batch) > 0 {
			return batch
		}
		select {
		case <-p.more:
		case <-p.quit:
			return nil
		}
	}
}

// settle takes the oldest n messages out: they are handled, or dead letters. Their offset may be committed.
func (p *partition) settle(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := p.queue[n-1].record
	for i, m := range p.queue[:n] {
		p.bytes -= m.size()
		p.queue[i] = Message{} // let go of its bytes
	}
	p.queue = p.queue[n:]
	p.next = last.Offset + 1
	if !p.abandoned {
		p.client.MarkCommitRecords(last)
	}
	p.pause()
}

// block says what the worker waits for; "" when it goes on. Nothing is fetched meanwhile.
func (p *partition) block(code string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.blocked = code
	p.pause()
}

// pause stops fetching when the queue is full or the worker waits, and resumes it when the queue is half empty and it does not.
func (p *partition) pause() {
	fill := max(float64(len(p.queue))/float64(p.maxRecords), float64(p.bytes)/float64(p.maxBytes))
	want := p.blocked != "" || fill >= 1 || p.paused && fill > 0.5
	if want == p.paused || p.closed {
		return
	}
	p.paused = want
	me := map[string][]int32{p.topic: {p.number}}
	if want {
		p.client.PauseFetchPartitions(me)
	} else {
		p.client.ResumeFetchPartitions(me)
	}
}

// close lets the worker begin nothing more, and tells whether the partition was abandoned before.
func (p *partition) close() (abandoned bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.closed = true
		close(p.quit)
	}
	return p.abandoned
}

// gone tells whether nothing more is to be begun.
func (p *partition) gone() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed
}

// abandon lets no offset be committed any more, and tells whether the worker has not ended.
func (p *partition) abandon() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.abandoned = true
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

func (p *partition) stats() PartitionStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return PartitionStats{Topic: p.topic, Partition: p.number, Next: p.next, End: p.end, Lag: max(0, p.end-p.next),
		Queued: len(p.queue), Blocked: p.blocked}
}

// wait waits for d, and tells whether it was not broken off by quit.
func wait(quit <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-quit:
		return false
	}
}
