package relay

import "context"

// Destination delivers events. The relay calls Deliver from several goroutines at once; deliveries of
// one lane never overlap.
type Destination interface {
	// Deliver tries each delivery of the batch once, in order, and returns one outcome each in the same
	// places. It returns by the context's deadline, which is the destination's delivery timeout.
	// When the context was cancelled with the cause ErrShutdown, what was not delivered is Released.
	// So is what was not tried because one before it in the batch, with the same key, has to be tried again: what is
	// sent all the same overtakes.
	Deliver(ctx context.Context, batch []Delivery) []Outcome
}

// A Batcher is a Destination that takes more than one delivery at a time. Without it a batch is one.
type Batcher interface {
	// MaxBatch is the most deliveries that one call of Deliver takes.
	MaxBatch() int
}

// A Router is a Destination with several endpoints. Each has its own breaker, guard and limit.
type Router interface {
	// Endpoint names where the event goes. It is called once for each event that is read, by one
	// goroutine, and must not block. An event that has none gets a Reject or Unavailable from Deliver.
	Endpoint(*Event) string
	// Several tells whether there can be more than one endpoint. A Router without is treated as a destination that is none: an
	// outage of it writes nothing, since nobody else waits behind it, and its guard pauses the destination.
	Several() bool
}

// A Limiter is a Router that knows how much its endpoints take at once.
type Limiter interface {
	// EndpointLimit is how many calls of Deliver may be under way for the endpoint, at most Concurrency; 0: the default, see
	// DestinationConfig.Concurrency.
	EndpointLimit(endpoint string) int
}

// A Checker is a Destination that can tell, without delivering anything, whether it could.
type Checker interface {
	// Check returns every problem it finds, each with a hint what to do.
	Check(ctx context.Context) []error
}
