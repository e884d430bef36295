package main

import (
	"context"
	"strconv"
	"sync/atomic"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// null is a destination that takes everything at once. Its receipts have the shape of Kafka's, partition@offset.
type null struct {
	batch  int
	offset atomic.Int64
}

func (n *null) MaxBatch() int { return n.batch }

func (n *null) Deliver(_ context.Context, batch []relay.Delivery) []relay.Outcome {
	outcomes := make([]relay.Outcome, len(batch))
	first := n.offset.Add(int64(len(batch))) - int64(len(batch))
	for i := range outcomes {
		outcomes[i] = relay.Outcome{Kind: relay.Published, Receipt: "0@" + strconv.FormatInt(first+int64(i), 10)}
	}
	return outcomes
}
