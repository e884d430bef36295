package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// Destination publishes events to Kafka. Make it with New, and Close it; its methods may be called by several goroutines at
// once.
type Destination struct {
	config  Config
	pool    *pool
	topics  topics
	rotates rotation
}

var (
	_ relay.Destination = (*Destination)(nil)
	_ relay.Batcher     = (*Destination)(nil)
	_ relay.Checker     = (*Destination)(nil)
)

// New returns the destination that c describes. The error joins all that is wrong with it. No file is read and nothing is
// dialled before Check or Deliver.
func New(c Config) (*Destination, error) {
	c = c.withDefaults()
	if problems := c.problems(); len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	return &Destination{config: c, pool: newPool(&c), topics: newTopics()}, nil
}

// MaxBatch implements relay.Batcher.
func (d *Destination) MaxBatch() int { return d.config.MaxBatch }

// Close ends all connections. No call of Deliver may be under way.
func (d *Destination) Close() { d.pool.close() }

// Deliver implements relay.Destination.
func (d *Destination) Deliver(ctx context.Context, batch []relay.Delivery) []relay.Outcome {
	if len(batch) == 0 {
		return nil
	}
	c := newCall(d, batch)
	c.run(ctx)
	return c.outcomes
}

// Check implements relay.Checker: is a broker there, are we let in, and do the topics exist that the configuration names?
func (d *Destination) Check(ctx context.Context) []error {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	p, err := d.pool.get()
	if err != nil {
		return []error{worded(err)}
	}
	defer d.pool.discard(p)
	named := slices.Collect(maps.Values(d.config.Topics))
	if !strings.Contains(d.config.Topic, placeholder) {
		named = append(named, d.config.Topic)
	}
	slices.Sort(named)
	found, err := d.topics.ask(ctx, p, slices.Compact(named))
	if err != nil {
		return []error{worded(err)}
	}
	var problems []error
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if out := found[name].fault; out != nil {
			problems = append(problems, fmt.Errorf("%s: %s", out.Code, out.Message))
		}
	}
	return problems
}

// worded says what Deliver would say about a failure.
func worded(err error) error {
	out := outcomeOf(err)
	return errors.New(out.Code + ": " + out.Message)
}
