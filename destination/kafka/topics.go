package kafka

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// What is known of topics, and how hard it is looked for.
const (
	lookupTimeout = 5 * time.Second
	// topicAge is for how long an answer is believed. New partitions are used after that.
	topicAge = time.Minute
	// absentAge is for how long a topic that was looked for in vain is not looked for again.
	absentAge = time.Second
	// maxTries is how often a topic is looked for before it counts as unknown: one that was just created may take a moment.
	maxTries = 4
	// maxLost is how often in one call a topic may be there when it is looked for and gone when something is sent.
	maxLost = 2
)

// topic is what the brokers say of one.
type topic struct {
	partitions int32
	led        []int32        // the partitions that have a leader
	fault      *relay.Outcome // it cannot be used
	absent     bool           // the fault is that there is none
	at         time.Time
}

// topics remembers.
type topics struct {
	mu    *sync.Mutex
	known map[string]topic
}

func newTopics() topics { return topics{mu: &sync.Mutex{}, known: map[string]topic{}} }

// get returns what is still believed.
func (t topics) get(name string) (topic, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	found, ok := t.known[name]
	age := topicAge
	if found.fault != nil {
		age = absentAge
	}
	return found, ok && time.Since(found.at) < age
}

func (t topics) remember(name string, found topic) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.known[name] = found
}

func (t topics) forget(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.known, name)
}

// ask asks a broker about topics, or, without any, whether it is there.
func (t topics) ask(ctx context.Context, p *producer, names []string) (map[string]topic, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{} // none, not all
	for _, name := range names {
		asked := kmsg.NewMetadataRequestTopic()
		asked.Topic = &name
		req.Topics = append(req.Topics, asked)
	}
	resp, err := req.RequestWith(ctx, p.client)
	if err != nil {
		return nil, p.reason(err)
	}
	found := map[string]topic{}
	for _, about := range resp.Topics {
		if about.Topic != nil {
			found[*about.Topic] = judgeTopic(*about.Topic, about)
		}
	}
	return found, nil
}

func judgeTopic(name string, about kmsg.MetadataResponseTopic) topic {
	found := topic{partitions: int32(len(about.Partitions)), at: time.Now()}
	for _, p := range about.Partitions {
		if p.Leader >= 0 {
			found.led = append(found.led, p.Partition)
		}
	}
	err := kerr.ErrorForCode(about.ErrorCode)
	if err == nil && found.partitions == 0 {
		err = kerr.LeaderNotAvailable
	}
	if err != nil && (found.partitions == 0 || !kerr.IsRetriable(err)) {
		found.absent = isUnknownTopic(err)
		out := outcomeOf(fmt.Errorf("topic %q: %w", name, err))
		found.fault = &out
	}
	return found
}

// route is a topic in one call.
type route struct {
	topic string
	known bool // there are partitions
	over  bool // there are none: all that were to go there have their outcome
	tries int  // lookups in vain
	next  time.Time
	lost  int // waves in which it was gone: see maxLost
	gone  int // the last of them
	info  topic
	slots map[int32]*slot
	last  *slot // where records without a key go
}

// settleOn takes in what is known of the topic. Slots stay, so that what is known of a partition does.
func (r *route) settleOn(found topic) {
	r.known, r.info = true, found
	if r.slots == nil {
		r.slots = map[int32]*slot{}
	}
}

// loses notes that the topic was gone in a wave, and tells whether it may be looked for once more.
func (r *route) loses(wave int) bool {
	if r.gone != wave {
		r.gone = wave
		r.lost++
	}
	return r.lost <= maxLost
}

// slotFor chooses the partition of a record.
func (r *route) slotFor(key []byte, turns *rotation) *slot {
	if key != nil {
		return r.slot(partitionOf(key, r.info.partitions))
	}
	if r.last == nil {
		r.last = r.turn(turns)
	}
	return r.last
}

// nextSlot is another partition for a record without a key, when one is full or does not work; the same if there is no other.
func (r *route) nextSlot(than *slot, turns *rotation) *slot {
	for range r.info.partitions {
		if next := r.turn(turns); next != than {
			r.last = next
			return next
		}
	}
	return than
}

// turn is the next partition in turn among those that have a leader.
func (r *route) turn(turns *rotation) *slot {
	led := r.info.led
	if len(led) == 0 {
		return r.slot(int32(turns.next(int(r.info.partitions))))
	}
	return r.slot(led[turns.next(len(led))])
}

func (r *route) slot(partition int32) *slot {
	s := r.slots[partition]
	if s == nil {
		s = &slot{partition: partition, route: r, limit: math.MaxInt}
		r.slots[partition] = s
	}
	return s
}

// resolve looks up the topics that are not known yet, once. It returns false when the brokers cannot be asked: then all that
// wait have their outcome.
func (c *call) resolve(ctx context.Context, p *producer) bool {
	var unknown []string
	for name, r := range c.routes {
		if r.known || r.over {
			continue
		}
		if found, ok := c.d.topics.get(name); ok {
			c.learn(r, found)
		} else if time.Now().After(r.next) {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) == 0 {
		return true
	}
	asking, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	found, err := c.d.topics.ask(asking, p, unknown)
	if err != nil {
		o := outcomeOf(err)
		if ctx.Err() != nil {
			o = interrupted(ctx, false)
		}
		c.settleAll(o)
		return false
	}
	for _, name := range unknown {
		r := c.routes[name]
		r.tries++
		about, told := found[name]
		if !told {
			about = judgeTopic(name, kmsg.MetadataResponseTopic{ErrorCode: kerr.UnknownTopicOrPartition.Code})
		}
		if about.absent && r.tries < maxTries {
			r.next = time.Now().Add(50 * time.Millisecond << r.tries) // 100 ms, 200 ms, 400 ms
			continue
		}
		c.d.topics.remember(name, about)
		c.learn(r, about)
	}
	return true
}

// learn takes in what is known of a topic: its partitions, or an outcome for all that were to go there.
func (c *call) learn(r *route, found topic) {
	if found.fault == nil {
		r.settleOn(found)
		return
	}
	r.over = true
	for i := range c.items {
		switch it := &c.items[i]; {
		case it.done || it.route != r:
		case it.lane != nil && it.lane.stopped:
			c.settle(i, relay.Outcome{Kind: relay.Released})
		default:
			c.settle(i, *found.fault)
		}
	}
}

// doubt waits until the topics that nobody knew are looked for again. The others have been served by now.
func (c *call) doubt(ctx context.Context) {
	var next time.Time
	for _, r := range c.routes {
		if !r.known && !r.over && (next.IsZero() || r.next.Before(next)) {
			next = r.next
		}
	}
	hold(ctx, time.Until(next)+time.Millisecond)
}
