package kafka

import (
	"context"
	"math"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// call is one call of Deliver.
type call struct {
	d        *Destination
	batch    []relay.Delivery
	outcomes []relay.Outcome
	items    []item // in the places of batch
	waiting  int    // items without an outcome
	first    int    // no item before it waits
	bytes    int    // of all records
	routes   map[string]*route
	wave     int            // counts from 1
	anew     bool           // the next wave gets a new producer
	slots    []*slot        // of this wave
	failures map[string]int // events by the code of their outcome
}

// item is one event on its way.
type item struct {
	record kgo.Record
	size   int   // of the record, at most
	lane   *lane // nil: no order asked for
	route  *route
	slot   *slot // nil: not known yet
	done   bool  // it has its outcome
	// uncertain: a try to send it had no answer. Whatever comes of it later, it may have arrived by then.
	uncertain bool
}

// lane is the deliveries of a call with one key.
type lane struct {
	stopped bool  // something of it has to be tried again: what stands behind is released
	blocked int   // the last wave that something of it could not join: nor can what stands behind
	wave    int   // the last wave that something of it is in …
	slot    *slot // … and where
}

// slot is one partition in a call. In a wave it is one record batch.
type slot struct {
	partition int32
	route     *route
	wave      int   // the last wave that it is in; what follows is about that
	items     []int // by their places
	bytes     int
	full      bool
	// limit is how many records a batch may have: fewer while one is looked for that spoils it.
	limit int
	fault *relay.Outcome // it does not work: nothing more of this call is sent there
}

// newCall makes the records. What cannot be made has its outcome already.
func newCall(d *Destination, batch []relay.Delivery) *call {
	c := &call{
		d: d, batch: batch, outcomes: make([]relay.Outcome, len(batch)), items: make([]item, len(batch)), waiting: len(batch),
		routes: map[string]*route{}, failures: map[string]int{},
	}
	composer := newComposer(d, len(batch))
	lanes := map[string]*lane{}
	var last *lane
	for i := range batch {
		it, e := &c.items[i], batch[i].Event
		if e.Key != "" {
			if i == 0 || last == nil || batch[i-1].Key != e.Key { // those of one lane stand together
				if last = lanes[e.Key]; last == nil {
					last = &lane{}
					lanes[e.Key] = last
				}
			}
			it.lane = last
		}
		if it.lane != nil && it.lane.stopped {
			c.settle(i, relay.Outcome{Kind: relay.Released})
			continue
		}
		if out := composer.compose(e, &it.record); out != nil {
			c.settle(i, *out)
			continue
		}
		it.size = recordSize(&it.record)
		it.route = c.routeTo(it.record.Topic)
		c.bytes += it.size
	}
	return c
}

func (c *call) routeTo(topic string) *route {
	r := c.routes[topic]
	if r == nil {
		r = &route{topic: topic}
		c.routes[topic] = r
	}
	return r
}

// run sends wave after wave until every event has its outcome or the time is over.
func (c *call) run(ctx context.Context) {
	defer func() {
		for code, n := range c.failures {
			c.d.config.Observer.Failed(n, code)
		}
	}()
	if c.bytes < c.d.config.BatchSize {
		hold(ctx, c.d.config.Linger)
	}
	for c.waiting > 0 && ctx.Err() == nil {
		p, err := c.producer()
		if err != nil {
			c.settleAll(outcomeOf(err))
			return
		}
		if !c.resolve(ctx, p) {
			c.d.pool.discard(p)
			continue
		}
		wave := c.pick()
		if len(wave) == 0 {
			c.d.pool.put(p)
			c.doubt(ctx)
			continue
		}
		t := c.send(ctx, p, wave)
		c.judge(ctx, p, wave, t)
	}
	if c.waiting > 0 { // nothing was sent of these
		c.settleAll(relay.Outcome{Kind: relay.Released})
	}
}

func (c *call) producer() (*producer, error) {
	if c.anew {
		c.anew = false
		return newProducer(&c.d.config)
	}
	return c.d.pool.get()
}

// hold waits for d, or until the context ends.
func hold(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// settle gives an event its outcome. When it has to be tried again, nothing behind it is sent.
func (c *call) settle(i int, o relay.Outcome) {
	it := &c.items[i]
	o.Uncertain = o.Uncertain || it.uncertain
	c.outcomes[i], it.done = o, true
	c.waiting--
	if o.Code != "" {
		c.failures[o.Code]++
	}
	if it.lane != nil && o.Kind != relay.Published && o.Kind != relay.Reject {
		it.lane.stopped = true
	}
}

// settleAll gives all that wait the same outcome.
func (c *call) settleAll(o relay.Outcome) {
	for i := range c.items {
		if !c.items[i].done {
			c.settle(i, o)
		}
	}
}

// pick chooses a wave: for each partition one record batch, and of each lane what stands in front and goes into one of them.
func (c *call) pick() (wave []int) {
	c.wave++
	c.slots = c.slots[:0]
	wave = make([]int, 0, c.waiting)
	for i := c.first; i < len(c.items); i++ {
		it := &c.items[i]
		switch {
		case it.done:
			if i == c.first {
				c.first++
			}
			continue
		case it.lane != nil && it.lane.stopped:
			c.settle(i, relay.Outcome{Kind: relay.Released})
			continue
		case it.lane != nil && it.lane.blocked == c.wave:
			continue
		}
		joined := c.join(i)
		if joined {
			wave = append(wave, i)
		}
		if it.lane != nil && !it.done {
			if joined {
				it.lane.wave, it.lane.slot = c.wave, it.slot
			} else {
				it.lane.blocked = c.wave
			}
		}
	}
	return wave
}

// join puts an event into the record batch of its partition, if that still has room and the lane may.
func (c *call) join(i int) bool {
	it := &c.items[i]
	if !it.route.known {
		return false
	}
	if it.slot == nil {
		it.slot = it.route.slotFor(it.record.Key, &c.d.rotates)
	}
	s := c.enter(it.slot)
	if it.record.Key == nil && it.lane == nil && (s.fault != nil || !c.takes(s, it)) {
		it.slot = it.route.nextSlot(s, &c.d.rotates) // any other will do
		s = c.enter(it.slot)
	}
	switch {
	case s.fault != nil:
		c.settle(i, *s.fault)
		return false
	case it.lane != nil && it.lane.wave == c.wave && it.lane.slot != s:
		return false // what stands in front may fail where this one goes through
	case !c.takes(s, it):
		s.full = true // in order within the partition as well
		return false
	}
	s.items = append(s.items, i)
	s.bytes += it.size
	it.record.Partition = s.partition
	return true
}

// enter makes a slot part of this wave.
func (c *call) enter(s *slot) *slot {
	if s.wave != c.wave {
		s.wave, s.items, s.bytes, s.full = c.wave, s.items[:0], 0, false
		c.slots = append(c.slots, s)
	}
	return s
}

func (c *call) takes(s *slot, it *item) bool {
	if len(s.items) == 0 {
		return true
	}
	return !s.full && len(s.items) < s.limit && batchOverhead+s.bytes+it.size <= c.d.config.BatchSize
}

// judge makes outcomes of what came back of a wave, and gives the producer back.
func (c *call) judge(ctx context.Context, p *producer, wave []int, t *tally) {
	if t.acknowledged() == len(wave) {
		c.d.pool.put(p)
		c.published(wave)
		for _, s := range c.slots {
			s.widen()
		}
		return
	}
	e := t.end(p)
	if t.flushed {
		c.d.pool.discard(p)
	} else {
		p.client.Close() // now, since what it still holds goes to the next one …
		t.open.Wait()    // … and it writes into records when it gives them up, which it does after Close
	}
	for _, s := range c.slots {
		c.judgeSlot(ctx, s, e)
	}
}

// judgeSlot is about one record batch, in which all is published or nothing.
func (c *call) judgeSlot(ctx context.Context, s *slot, e ending) {
	var failed []int
	var err error
	open := false
	for _, i := range s.items {
		r, ended := e.results[&c.items[i].record]
		switch {
		case ended && r.err == nil:
			c.settle(i, relay.Outcome{Kind: relay.Published, Receipt: receipt(s.partition, r.offset)})
			continue
		case !ended:
			open = true
		case err == nil:
			err = r.err
		}
		c.items[i].uncertain = c.items[i].uncertain || e.lost
		failed = append(failed, i)
	}
	if len(failed) == 0 {
		s.widen()
		return
	}
	switch {
	case err == nil && open && e.cause == nil: // another record kept the wave from being sent: they wait for the next
		return
	case err == nil:
		c.broken(ctx, s, failed, e)
		return
	case isRecordFault(err) && len(failed) > 1:
		s.limit = len(failed) / 2 // they wait for the next wave
		return
	case isRecordFault(err):
		s.widen()
		c.settleFailed(failed, outcomeOf(err))
		return
	case (isUnknownTopic(err) || isUnknownPartition(err)) && s.route.loses(c.wave):
		// One that has been idle does not know what the topic has got since: a new one asks.
		c.anew = c.anew || isUnknownPartition(err)
		c.d.topics.forget(s.route.topic)
		s.route.known, s.route.tries = false, 0 // looked up again; they wait
		for i := range c.items {
			if it := &c.items[i]; !it.done && it.route == s.route {
				it.slot = nil
			}
		}
		return
	}
	c.d.topics.forget(s.route.topic)
	c.condemn(s, failed, outcomeOf(err))
}

// broken is about a record batch whose outcome is not known.
func (c *call) broken(ctx context.Context, s *slot, failed []int, e ending) {
	if ctx.Err() != nil {
		c.condemn(s, failed, interrupted(ctx, e.written))
		return
	}
	o := outcomeOf(e.cause)
	o.Uncertain = o.Uncertain || e.written
	c.condemn(s, failed, o)
}

// condemn gives what was sent its outcome, and leaves the partition alone for the rest of the call.
func (c *call) condemn(s *slot, failed []int, o relay.Outcome) {
	rest := o
	rest.Uncertain = false
	if o.Kind == relay.Retry {
		rest = relay.Outcome{Kind: relay.Released} // no attempt was made with those
	}
	s.fault = &rest
	c.settleFailed(failed, o)
}

// settleFailed gives those of a record batch the same outcome; behind the first of a lane the others are uncharged.
func (c *call) settleFailed(failed []int, o relay.Outcome) {
	for _, i := range failed {
		c.settle(i, o)
	}
}

// widen lets a batch grow again after one that was cut down went through, or ended.
func (s *slot) widen() {
	if s.limit < math.MaxInt/2 {
		s.limit *= 2
	}
}

// published settles a wave in which all went well. The receipts share one text.
func (c *call) published(wave []int) {
	text := make([]byte, 0, 12*len(wave))
	ends := make([]int, len(wave))
	for n, i := range wave {
		r := &c.items[i].record
		text = appendReceipt(text, r.Partition, r.Offset)
		ends[n] = len(text)
	}
	all, from := string(text), 0
	for n, i := range wave {
		c.settle(i, relay.Outcome{Kind: relay.Published, Receipt: all[from:ends[n]]})
		from = ends[n]
	}
}

func appendReceipt(dst []byte, partition int32, offset int64) []byte {
	dst = strconv.AppendInt(dst, int64(partition), 10)
	return strconv.AppendInt(append(dst, '@'), offset, 10)
}

func receipt(partition int32, offset int64) string {
	return string(appendReceipt(nil, partition, offset))
}
