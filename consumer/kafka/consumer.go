package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Consumer is a member of a consumer group. Make it with New, and Run it once; its other methods may be called by several
// goroutines at any time.
type Consumer[T any] struct {
	Config[T]
	counters counters
	letters  *deadLetters
	slots    chan struct{} // one for each open transaction
	running  atomic.Bool
	// uncommitted says that the last commit of offsets failed.
	uncommitted atomic.Bool

	mu         sync.Mutex
	client     *kgo.Client // nil before the first assignment
	partitions map[place]*partition
	stuck      []place // their handlers did not end in time
}

// place is a partition of a topic.
type place struct {
	topic  string
	number int32
}

func (p place) String() string { return fmt.Sprintf("%s[%d]", p.topic, p.number) }

// New returns the consumer that c describes, or an error that names every problem. Nothing is dialled before Check or Run.
func New[T any](c Config[T]) (*Consumer[T], error) {
	c.setDefaults()
	problems := c.check()
	if problems == nil {
		problems = kgo.ValidateOpts(append(c.connect(), c.member()...)...)
	}
	if problems != nil {
		return nil, fmt.Errorf("configuration of the Kafka consumer: %w", problems)
	}
	return &Consumer[T]{
		Config: c, letters: newDeadLetters(c.connect()), slots: make(chan struct{}, c.Concurrency), partitions: map[place]*partition{},
	}, nil
}

// connect are the options of every client.
func (c *Config[T]) connect() []kgo.Opt {
	return append(slices.Clone(c.Client), kgo.SeedBrokers(c.Brokers...), kgo.ClientID(c.ClientID))
}

// member are the options of the member of the group. A rebalance waits while polled messages are put into their queues, which
// is short, and never for a handler that is not of a partition that goes.
func (c *Config[T]) member() []kgo.Opt {
	start := kgo.NewOffset().AtStart()
	if c.StartAtEnd {
		start = kgo.NewOffset().AtEnd()
	}
	return []kgo.Opt{
		kgo.ConsumeTopics(c.Topics...), kgo.ConsumerGroup(c.Group), kgo.Balancers(kgo.CooperativeStickyBalancer()),
		kgo.ConsumeStartOffset(start), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.BlockRebalanceOnPoll(), kgo.SessionTimeout(c.SessionTimeout), kgo.RebalanceTimeout(rebalanceTimeout),
		kgo.HeartbeatInterval(min(heartbeat, c.SessionTimeout/3)),
		kgo.AutoCommitMarks(), kgo.AutoCommitInterval(c.CommitInterval),
		kgo.FetchMaxBytes(int32(c.FetchBytes)), kgo.FetchMaxPartitionBytes(int32(c.FetchPartitionBytes)), kgo.FetchMaxWait(fetchWait),
	}
}

// Run consumes until the context ends: then the transactions under way may finish within Config.Finish, offsets are committed and
// the group is left. It returns nil then, or an error that names the partitions whose handlers did not end. Run begins with
// Check, and returns what it finds; but brokers that are away are waited for, then and later.
func (c *Consumer[T]) Run(ctx context.Context) error {
	if !c.running.CompareAndSwap(false, true) {
		return errors.New("the consumer runs, or has run: make another with New")
	}
	if err := errors.Join(c.Check(ctx)...); errors.Is(err, errAway) {
		c.Log.WarnContext(ctx, "Kafka is not there yet", "group", c.Group, "error", err)
	} else if err != nil {
		return fmt.Errorf("consume %v: %w", c.Topics, err)
	}
	defer c.letters.close()
	client, err := kgo.NewClient(append(append(c.connect(), c.member()...),
		kgo.OnPartitionsAssigned(c.assigned), kgo.OnPartitionsRevoked(c.revoked), kgo.OnPartitionsLost(c.lost),
		kgo.AdjustFetchOffsetsFn(c.begin), kgo.AutoCommitCallback(c.committed))...)
	if err != nil {
		return fmt.Errorf("consume %v: %w", c.Topics, err)
	}
	for ctx.Err() == nil {
		fetches := client.PollFetches(ctx) // all of it: the client would throw away what a paused partition leaves
		failed := c.dispatch(ctx, fetches)
		client.AllowRebalance()
		if failed {
			wait(ctx.Done(), fetchWait) // it may fail again at once
		}
	}
	return c.stop(client)
}

// dispatch puts what was polled into the queues. It does not wait for anything. It tells whether something failed.
func (c *Consumer[T]) dispatch(ctx context.Context, fetches kgo.Fetches) (failed bool) {
	fetches.EachPartition(func(f kgo.FetchTopicPartition) {
		at := place{f.Topic, f.Partition}
		if f.Err != nil && ctx.Err() == nil {
			failed = true
			c.Log.WarnContext(ctx, "fetch failed; it is tried again", "group", c.Group, "partition", at.String(), "error", f.Err)
		}
		c.mu.Lock()
		p := c.partitions[at]
		c.mu.Unlock()
		if p == nil {
			return // an error that belongs to no partition
		}
		end := f.LastStableOffset
		if end < 0 { // the broker does not know it
			end = f.HighWatermark
		}
		p.put(f.Records, end)
	})
	return failed
}

// stop ends in good order.
func (c *Consumer[T]) stop(client *kgo.Client) error {
	c.mu.Lock()
	var all []*partition
	for _, p := range c.partitions {
		all = append(all, p)
	}
	c.mu.Unlock()
	c.end(all, c.Finish)
	c.commit(client)
	ctx, cancel := context.WithTimeout(context.Background(), commitTimeout)
	defer cancel()
	if err := client.LeaveGroupContext(ctx); err != nil {
		c.Log.Warn("the group was not left; its partitions wait for the session's end", "group", c.Group, "error", err)
	}
	client.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.stuck) > 0 {
		return fmt.Errorf("consume %v: handlers of %v did not end when their context did: let Handle heed it", c.Topics, c.stuck)
	}
	return nil
}

// ---- What the group says -----------------------------------------------------------------------------------------

func (c *Consumer[T]) assigned(_ context.Context, client *kgo.Client, given map[string][]int32) {
	client.ResumeFetchPartitions(given) // a pause outlives an assignment
	c.mu.Lock()
	defer c.mu.Unlock()
	c.client = client
	for at := range places(given) {
		p := newPartition(at, client, c.QueueRecords, c.QueueBytes)
		c.partitions[at] = p
		c.counters.assigned.Add(1)
		go func() { // end waits for it
			defer close(p.done)
			c.work(p)
		}()
	}
	if len(given) > 0 {
		c.Log.Info("partitions assigned", "group", c.Group, "partitions", given)
	}
}

// begin commits where the group begins in partitions of which it has no offset, when that is at their end. Without an offset it would
// begin at the end again after the next rebalance or restart, past what came meanwhile and was not handled: a partition may be without a
// message for long, and its first one may have to be tried again. An error makes the client join anew and ask again.
func (c *Consumer[T]) begin(ctx context.Context, offsets map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
	var topics []string
	for topic, partitions := range offsets {
		for _, at := range partitions {
			if at.EpochOffset().Offset < 0 && !slices.Contains(topics, topic) {
				topics = append(topics, topic)
			}
		}
	}
	if !c.StartAtEnd || len(topics) == 0 {
		return offsets, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*commitTimeout)
	defer cancel()
	c.mu.Lock()
	client := c.client
	c.mu.Unlock()
	ends, err := kadm.NewClient(client).ListCommittedOffsets(ctx, topics...)
	if err != nil {
		return nil, fmt.Errorf("look for the end of %v: %w", topics, err)
	}
	begins := map[string]map[int32]kgo.EpochOffset{}
	for _, topic := range topics {
		begins[topic] = map[int32]kgo.EpochOffset{}
		for number, at := range offsets[topic] {
			if at.EpochOffset().Offset >= 0 {
				continue
			}
			end, told := ends.Lookup(topic, number)
			if !told || end.Err != nil {
				err = cmp.Or(end.Err, error(kerr.UnknownTopicOrPartition))
				return nil, fmt.Errorf("look for the end of %v: %w", place{topic, number}, err)
			}
			begins[topic][number] = kgo.EpochOffset{Epoch: -1, Offset: end.Offset}
			offsets[topic][number] = kgo.NewOffset().At(end.Offset)
		}
	}
	client.CommitOffsetsSync(ctx, begins, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, failed error) {
		err = commitError(resp, failed)
	})
	if err != nil {
		return nil, fmt.Errorf("commit where the group begins: %w", err)
	}
	return offsets, nil
}

// revoked lets partitions go: what is under way ends, and its offset is committed before another member gets them.
func (c *Consumer[T]) revoked(_ context.Context, client *kgo.Client, gone map[string][]int32) {
	c.counters.revoked.Add(c.letGo(gone, c.Finish))
	c.commit(client)
	if len(gone) > 0 {
		c.Log.Info("partitions revoked", "group", c.Group, "partitions", gone)
	}
}

// lost: others may have the partitions already, so nothing is waited for, and no offset can be committed.
func (c *Consumer[T]) lost(_ context.Context, _ *kgo.Client, gone map[string][]int32) {
	c.counters.lost.Add(c.letGo(gone, 0))
	if len(gone) > 0 {
		c.Log.Warn("partitions lost: the group went on without this member", "group", c.Group, "partitions", gone)
	}
}

func (c *Consumer[T]) letGo(gone map[string][]int32, within time.Duration) uint64 {
	var all []*partition
	c.mu.Lock()
	for at := range places(gone) {
		if p := c.partitions[at]; p != nil {
			all = append(all, p)
			delete(c.partitions, at)
		}
	}
	c.mu.Unlock()
	c.end(all, within)
	return uint64(len(all))
}

// places yields every partition of a map of franz-go.
func places(all map[string][]int32) func(yield func(place) bool) {
	return func(yield func(place) bool) {
		for topic, numbers := range all {
			for _, number := range numbers {
				if !yield(place{topic, number}) {
					return
				}
			}
		}
	}
}

// end lets the workers end: nothing more is begun, what is under way may finish within the time and is rolled back after
// it. A handler that does not heed its context is left to itself: whatever it still does, its offset is not committed.
func (c *Consumer[T]) end(all []*partition, within time.Duration) {
	const grace = 2 * time.Second // for a rollback
	all = slices.DeleteFunc(all, (*partition).close)
	if awaitAll(all, within) {
		return
	}
	for _, p := range all {
		p.cancel()
	}
	awaitAll(all, grace)
	for _, p := range all {
		if p.abandon() {
			c.Log.Error("the handler does not end: let it heed its context", "group", c.Group, "partition", p.String())
			c.mu.Lock()
			c.stuck = append(c.stuck, p.place)
			c.mu.Unlock()
		}
	}
}

// awaitAll tells whether all have ended within the time.
func awaitAll(all []*partition, within time.Duration) bool {
	timer := time.NewTimer(within)
	defer timer.Stop()
	for _, p := range all {
		select {
		case <-p.done:
		case <-timer.C:
			return false
		}
	}
	return true
}

func (c *Consumer[T]) commit(client *kgo.Client) {
	ctx, cancel := context.WithTimeout(context.Background(), commitTimeout)
	defer cancel()
	c.judge(client.CommitMarkedOffsets(ctx))
}

// committed is told of the commits that the client makes by itself.
func (c *Consumer[T]) committed(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
	if errors.Is(err, context.Canceled) {
		return // another commit came first
	}
	c.judge(commitError(resp, err))
}

// commitError returns what kept a commit from being made, or a part of it.
func commitError(resp *kmsg.OffsetCommitResponse, err error) error {
	if err != nil {
		return err
	}
	for _, topic := range resp.Topics {
		for _, partition := range topic.Partitions {
			err = cmp.Or(err, kerr.ErrorForCode(partition.ErrorCode))
		}
	}
	return err
}

func (c *Consumer[T]) judge(err error) {
	if err == nil {
		c.counters.commits.Add(1)
		c.uncommitted.Store(false)
		return
	}
	c.counters.commitsFailed.Add(1)
	if c.uncommitted.Swap(true) {
		return // it was said
	}
	c.Log.Warn("offsets were not committed; the inbox knows what comes again", "group", c.Group, "error", err)
}

// ---- What is told ------------------------------------------------------------------------------------------------

// Stats returns the counters, and the partitions of this member.
func (c *Consumer[T]) Stats() Stats {
	s := c.counters.stats()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.partitions {
		s.Partitions = append(s.Partitions, p.stats())
	}
	slices.SortFunc(s.Partitions, func(a, b PartitionStats) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return s
}

// errAway says that no broker answers.
var errAway = errors.New("no broker answers")

// Check asks the brokers whether the topics and their dead-letter topics are there, and returns all that is wrong.
func (c *Consumer[T]) Check(ctx context.Context) []error {
	ctx, cancel := context.WithTimeout(ctx, 2*commitTimeout)
	defer cancel()
	client, err := kgo.NewClient(c.connect()...)
	if err != nil {
		return []error{err}
	}
	defer client.Close()
	var names []string
	for _, topic := range c.Topics {
		names = append(names, topic, c.deadLetterTopic(topic))
	}
	slices.Sort(names)
	names = slices.Compact(names)
	details, err := kadm.NewClient(client).ListTopics(ctx, names...)
	if err != nil {
		return []error{fmt.Errorf("%w: %w: are the addresses of Brokers right?", errAway, err)}
	}
	var problems []error
	for _, name := range names {
		if err := details[name].Err; err != nil {
			problems = append(problems, fmt.Errorf("topic %s: %w: create it, and let this client describe it", name, err))
		}
	}
	return problems
}
