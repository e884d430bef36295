package kafka

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// How often something is tried within one wave. What the broker refuses is tried for about two seconds, so that a
// partition that moves costs nothing; what is not back by then is Unavailable, and the relay's breaker probes it.
const (
	recordRetries = 6
	// dialTries is how many connections in a row one broker may refuse.
	dialTries   = 4
	dialTimeout = 3 * time.Second

	produceKey = 0 // of the request Produce
)

// backoff is the pause before a try, counted from 1.
func backoff(try int) time.Duration {
	return min(50*time.Millisecond<<min(try, 5), 400*time.Millisecond)
}

// pool keeps producers between calls. A call under way has one to itself, so there are as many as calls under way at once.
type pool struct {
	config  *Config
	mu      sync.Mutex
	idle    []*producer
	closing sync.WaitGroup
}

func newPool(c *Config) *pool { return &pool{config: c} }

func (l *pool) get() (*producer, error) {
	l.mu.Lock()
	if n := len(l.idle); n > 0 {
		p := l.idle[n-1] // the one that was used last has its connections open
		l.idle = l.idle[:n-1]
		l.mu.Unlock()
		return p, nil
	}
	l.mu.Unlock()
	return newProducer(l.config)
}

// put takes back a producer that has nothing left to do.
func (l *pool) put(p *producer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.idle = append(l.idle, p)
}

// discard ends a producer whose state is not known, with all that it holds. It does not wait for that.
func (l *pool) discard(p *producer) { l.closing.Go(p.client.Close) }

func (l *pool) close() {
	l.mu.Lock()
	idle := l.idle
	l.idle = nil
	l.mu.Unlock()
	for _, p := range idle {
		l.discard(p)
	}
	l.closing.Wait()
}

// producer is a client and what its connections have shown.
type producer struct {
	client *kgo.Client
	// Since the wave began: whether records were sent, how many have found their partition, and what is without an answer.
	written     atomic.Bool
	partitioned atomic.Int64
	unanswered  atomic.Int64 // requests that were sent, less their answers

	mu      sync.Mutex
	refused map[int32]int // connections in a row, by broker
	last    error         // of the last connection that failed
	abort   context.CancelCauseFunc
}

func newProducer(c *Config) (*producer, error) {
	p := &producer{refused: map[int32]int{}, abort: func(error) {}}
	opts := []kgo.Opt{
		kgo.SeedBrokers(c.Brokers...),
		kgo.ClientID(c.ClientID),
		kgo.SoftwareNameAndVersion("pillarbox", "1"),
		kgo.DisableClientMetrics(),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProducerBatchCompression(compressions[c.Compression]),
		kgo.ProducerBatchMaxBytes(int32(c.MaxRecordSize)),
		kgo.MaxBufferedRecords(c.MaxBatch + 1),
		kgo.ManualFlushing(), // so that what a wave sends to a partition is one batch
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProduceRequestTimeout(c.RequestTimeout),
		kgo.RecordRetries(recordRetries),
		kgo.UnknownTopicRetries(maxTries),
		kgo.RetryBackoffFn(backoff),
		kgo.RequestRetries(dialTries - 1),
		kgo.MetadataMinAge(100 * time.Millisecond),
		kgo.WithHooks(append([]kgo.Hook{p}, c.Hooks...)...),
	}
	opts = append(opts, c.security()...)
	var err error
	p.client, err = kgo.NewClient(opts...)
	return p, err
}

// OnBrokerConnect implements kgo.HookBrokerConnect: a broker that cannot be reached, or refuses us, ends the wave.
func (p *producer) OnBrokerConnect(meta kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		delete(p.refused, meta.NodeID)
		p.last = nil
		return
	}
	p.refused[meta.NodeID]++
	p.last = err
	if p.refused[meta.NodeID] >= dialTries || isFinalFault(err) {
		p.abort(err)
	}
}

// OnBrokerWrite implements kgo.HookBrokerWrite.
func (p *producer) OnBrokerWrite(_ kgo.BrokerMetadata, key int16, bytes int, _, _ time.Duration, _ error) {
	if key == produceKey && bytes > 0 {
		p.written.Store(true)
		p.unanswered.Add(1)
	}
}

// OnBrokerRead implements kgo.HookBrokerRead.
func (p *producer) OnBrokerRead(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, err error) {
	if key == produceKey && err == nil {
		p.unanswered.Add(-1)
	}
}

// OnProduceRecordPartitioned implements kgo.HookProduceRecordPartitioned. What has a partition is sent at the next flush.
func (p *producer) OnProduceRecordPartitioned(*kgo.Record, int32) { p.partitioned.Add(1) }

// reason prefers what a connection failed with to what that led to.
func (p *producer) reason(err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last != nil {
		return p.last
	}
	return err
}

// begin makes a wave's context, which ends when a broker cannot be reached.
func (p *producer) begin(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	p.written.Store(false)
	p.partitioned.Store(0)
	p.unanswered.Store(0)
	p.mu.Lock()
	p.abort = cancel
	clear(p.refused)
	p.mu.Unlock()
	return ctx, cancel
}

// result is what became of a record.
type result struct {
	offset int64
	err    error
}

// tally gathers what becomes of the records of a wave.
type tally struct {
	open     sync.WaitGroup // the records that the client still has, and may still write into
	mu       sync.Mutex
	acked    int
	records  []*kgo.Record // all that have ended …
	failures map[*kgo.Record]error
	cause    error // the wave was broken off
	closed   bool  // what comes now is too late
	flushed  bool  // the wave was sent; written and read by the call alone
}

// promise is called for each record, by one goroutine.
func (t *tally) promise(r *kgo.Record, err error) {
	defer t.open.Done()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	t.records = append(t.records, r)
	if err == nil {
		t.acked++
		return
	}
	if t.failures == nil {
		t.failures = map[*kgo.Record]error{}
	}
	t.failures[r] = err
}

// acknowledged is how many records are.
func (t *tally) acknowledged() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.acked
}

func (t *tally) failing() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failures != nil
}

// ending is how a wave ended in which not all went well.
type ending struct {
	results map[*kgo.Record]result // a record without one is open
	cause   error                  // of the open ones; nil: nothing was sent
	written bool                   // what is open may have arrived
	lost    bool                   // a try had no answer: what failed after it may have arrived as well
}

// end ends the gathering.
func (t *tally) end(p *producer) ending {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	e := ending{results: make(map[*kgo.Record]result, len(t.records)), cause: t.cause, written: p.written.Load(),
		lost: p.unanswered.Load() > 0}
	for _, r := range t.records {
		e.results[r] = result{offset: r.Offset, err: t.failures[r]}
	}
	return e
}

// send sends a wave and waits for its end. Records that the client has no partition for yet must have one before the flush:
// else those of one partition would go out in several batches.
func (c *call) send(ctx context.Context, p *producer, wave []int) *tally {
	t := &tally{records: make([]*kgo.Record, 0, len(wave))}
	sending, cancel := p.begin(ctx)
	defer cancel(nil)
	began := time.Now()
	t.open.Add(len(wave))
	for _, i := range wave {
		p.client.Produce(context.Background(), &c.items[i].record, t.promise)
	}
	for p.partitioned.Load() < int64(len(wave)) {
		if t.failing() {
			return t
		}
		if hold(sending, time.Millisecond); sending.Err() != nil {
			t.breakOff(context.Cause(sending))
			return t
		}
	}
	t.flushed = true
	if p.client.Flush(sending) != nil {
		t.breakOff(context.Cause(sending))
	}
	if n := t.acknowledged(); n > 0 {
		c.d.config.Observer.Sent(n, time.Since(began))
	}
	return t
}

func (t *tally) breakOff(cause error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cause = cause
}
