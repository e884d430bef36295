package relaytest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// Point is a place in a call of a store or destination where something can go wrong: before it reaches the other side, or
// after it took effect there and before its answer is seen.
type Point string

const (
	BeforeRead    Point = "before read"
	AfterRead     Point = "after read"
	BeforeAcquire Point = "before acquire"
	AfterAcquire  Point = "after acquire"
	BeforeRenew   Point = "before renew"
	AfterRenew    Point = "after renew"
	BeforeRelease Point = "before release"
	AfterRelease  Point = "after release"
	BeforeSettle  Point = "before settle"
	AfterSettle   Point = "after settle"
	BeforeRecover Point = "before recover"
	AfterRecover  Point = "after recover"
	BeforeClaim   Point = "before claim"
	AfterClaim    Point = "after claim"
	BeforeDeliver Point = "before deliver"
	AfterDeliver  Point = "after deliver"
)

// Fault is asked at each point of each call, by any number of goroutines. It may wait. Before a call an error ends it without
// effect; after it, the answer is lost and the error returned instead.
type Fault func(ctx context.Context, p Point) error

// ErrInjected is what the faults of this package return.
var ErrInjected = errors.New("injected fault")

// FaultyStore returns the store with faults, asked in their order. It is a relay.Waker if the store is one.
func FaultyStore(s relay.Store, faults ...Fault) relay.Store {
	return keepWaker(&faultyStore{s, faults}, s)
}

// keepWaker adds the Waker of the store that was wrapped.
func keepWaker(wrapper, wrapped relay.Store) relay.Store {
	w, ok := wrapped.(relay.Waker)
	if !ok {
		return wrapper
	}
	return struct {
		relay.Store
		relay.Waker
	}{wrapper, w}
}

type faultyStore struct {
	store  relay.Store
	faults []Fault
}

// around makes a call between two points.
func around[T any](ctx context.Context, faults []Fault, before, after Point, call func() (T, error)) (T, error) {
	var none T
	if err := ask(ctx, faults, before); err != nil {
		return none, err
	}
	answer, err := call()
	if lost := ask(ctx, faults, after); lost != nil {
		return none, lost
	}
	return answer, err
}

func ask(ctx context.Context, faults []Fault, p Point) error {
	for _, fault := range faults {
		if err := fault(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

func (s *faultyStore) Read(ctx context.Context, q relay.Query) (relay.Page, error) {
	return around(ctx, s.faults, BeforeRead, AfterRead, func() (relay.Page, error) { return s.store.Read(ctx, q) })
}

func (s *faultyStore) Acquire(ctx context.Context, r relay.AcquireRequest) (relay.Lease, bool, error) {
	var ok bool
	lease, err := around(ctx, s.faults, BeforeAcquire, AfterAcquire, func() (l relay.Lease, err error) {
		l, ok, err = s.store.Acquire(ctx, r)
		return l, err
	})
	return lease, ok && err == nil, err
}

func (s *faultyStore) Renew(ctx context.Context, l relay.LeaseID) (relay.Renewal, error) {
	return around(ctx, s.faults, BeforeRenew, AfterRenew, func() (relay.Renewal, error) { return s.store.Renew(ctx, l) })
}

func (s *faultyStore) Release(ctx context.Context, l relay.LeaseID) error {
	_, err := around(ctx, s.faults, BeforeRelease, AfterRelease, func() (none struct{}, err error) {
		return none, s.store.Release(ctx, l)
	})
	return err
}

func (s *faultyStore) Settle(ctx context.Context, l relay.LeaseID, settlement relay.Settlement) (relay.Settled, error) {
	return around(ctx, s.faults, BeforeSettle, AfterSettle, func() (relay.Settled, error) {
		return s.store.Settle(ctx, l, settlement)
	})
}

func (s *faultyStore) Recover(ctx context.Context, l relay.LeaseID, limit int) (relay.Recovered, error) {
	return around(ctx, s.faults, BeforeRecover, AfterRecover, func() (relay.Recovered, error) {
		return s.store.Recover(ctx, l, limit)
	})
}

func (s *faultyStore) Claim(ctx context.Context, l relay.LeaseID, c relay.Claim) (relay.Claimed, error) {
	return around(ctx, s.faults, BeforeClaim, AfterClaim, func() (relay.Claimed, error) { return s.store.Claim(ctx, l, c) })
}

// FaultyDestination returns the destination with faults, asked in their order. What fails before Deliver could not be
// reached; when the answer is lost, the receiver may have handled it. The optional interfaces are kept.
func FaultyDestination(d relay.Destination, faults ...Fault) relay.Destination {
	every := func(n int, o relay.Outcome) []relay.Outcome { return slices.Repeat([]relay.Outcome{o}, n) }
	return wrapDestination(d, func(ctx context.Context, batch []relay.Delivery) []relay.Outcome {
		if err := ask(ctx, faults, BeforeDeliver); err != nil {
			if errors.Is(context.Cause(ctx), relay.ErrShutdown) {
				return every(len(batch), relay.Outcome{Kind: relay.Released})
			}
			return every(len(batch), relay.Outcome{Kind: relay.Unavailable, Code: "INJECTED", Message: err.Error()})
		}
		outcomes := d.Deliver(ctx, batch)
		if err := ask(ctx, faults, AfterDeliver); err != nil {
			return every(len(batch), relay.Outcome{Kind: relay.Retry, Code: "INJECTED", Message: err.Error(), Uncertain: true})
		}
		return outcomes
	})
}

// wrapDestination replaces Deliver and keeps what else the destination can do.
func wrapDestination(d relay.Destination, deliver func(context.Context, []relay.Delivery) []relay.Outcome) relay.Destination {
	w := &wrappedDestination{d, deliver}
	if r, ok := d.(relay.Router); ok {
		return &wrappedRouter{w, r}
	}
	return w
}

type wrappedDestination struct {
	relay.Destination
	deliver func(context.Context, []relay.Delivery) []relay.Outcome
}

func (w *wrappedDestination) Deliver(ctx context.Context, batch []relay.Delivery) []relay.Outcome {
	return w.deliver(ctx, batch)
}

func (w *wrappedDestination) MaxBatch() int {
	if b, ok := w.Destination.(relay.Batcher); ok {
		return b.MaxBatch()
	}
	return 1
}

func (w *wrappedDestination) Check(ctx context.Context) []error {
	if c, ok := w.Destination.(relay.Checker); ok {
		return c.Check(ctx)
	}
	return nil
}

type wrappedRouter struct {
	*wrappedDestination
	router relay.Router
}

func (w *wrappedRouter) Endpoint(e *relay.Event) string { return w.router.Endpoint(e) }

func (w *wrappedRouter) Several() bool { return w.router.Several() }

func (w *wrappedRouter) EndpointLimit(endpoint string) int {
	if l, ok := w.router.(relay.Limiter); ok {
		return l.EndpointLimit(endpoint)
	}
	return 0
}

// CrashAt calls crash the nth time that the point is passed, counted from 1, and lets the call fail from then on, like all
// others: a process that died says nothing more. crash may also end the process for real.
func CrashAt(p Point, nth int, crash func()) Fault {
	var mu sync.Mutex
	passed := 0
	dead := false
	return func(_ context.Context, at Point) error {
		mu.Lock()
		defer mu.Unlock()
		if at == p {
			passed++
		}
		if !dead && passed == nth {
			dead = true
			crash()
		}
		if dead {
			return fmt.Errorf("%w: crashed %s", ErrInjected, p)
		}
		return nil
	}
}

// Fails returns a fault that lets calls fail with a probability at the given points.
func Fails(chance *rand.Rand, probability float64, points ...Point) Fault {
	draw := locked(chance)
	return func(_ context.Context, p Point) error {
		if slices.Contains(points, p) && draw() < probability {
			return fmt.Errorf("%w %s", ErrInjected, p)
		}
		return nil
	}
}

// Delays returns a fault that lets calls wait for up to longest at the given points, or until their context ends.
func Delays(chance *rand.Rand, longest time.Duration, points ...Point) Fault {
	draw := locked(chance)
	return func(ctx context.Context, p Point) error {
		if slices.Contains(points, p) {
			wait(ctx, time.Duration(draw()*float64(longest)))
		}
		return nil
	}
}

// Hangs returns a fault that lets calls wait, with a probability, for a time at the given points, whatever their context
// says: as if the process had been stopped.
func Hangs(chance *rand.Rand, probability float64, d time.Duration, points ...Point) Fault {
	draw := locked(chance)
	return func(_ context.Context, p Point) error {
		if slices.Contains(points, p) && draw() < probability {
			time.Sleep(d)
		}
		return nil
	}
}

func locked(chance *rand.Rand) func() float64 {
	var mu sync.Mutex
	return func() float64 {
		mu.Lock()
		defer mu.Unlock()
		return chance.Float64()
	}
}

func wait(ctx context.Context, d time.Duration) {
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

// LateStore returns a store whose settles and claims hang, with a probability, for a time on their way. The one who waits gives up when
// its context ends; the call arrives all the same. It is a relay.Waker if the store is one.
func LateStore(s relay.Store, chance *rand.Rand, probability float64, d time.Duration) relay.Store {
	return keepWaker(&lateStore{s, locked(chance), probability, d}, s)
}

type lateStore struct {
	relay.Store
	draw        func() float64
	probability float64
	d           time.Duration
}

func (s *lateStore) Settle(ctx context.Context, l relay.LeaseID, settlement relay.Settlement) (relay.Settled, error) {
	return late(ctx, s, func(ctx context.Context) (relay.Settled, error) { return s.Store.Settle(ctx, l, settlement) })
}

func (s *lateStore) Claim(ctx context.Context, l relay.LeaseID, c relay.Claim) (relay.Claimed, error) {
	return late(ctx, s, func(ctx context.Context) (relay.Claimed, error) { return s.Store.Claim(ctx, l, c) })
}

// late makes a call, or lets it arrive late.
func late[T any](ctx context.Context, s *lateStore, call func(context.Context) (T, error)) (T, error) {
	if s.draw() >= s.probability {
		return call(ctx)
	}
	type answer struct {
		value T
		err   error
	}
	answers := make(chan answer, 1)
	go func() {
		time.Sleep(s.d)
		value, err := call(context.WithoutCancel(ctx))
		answers <- answer{value, err}
	}()
	select {
	case a := <-answers:
		return a.value, a.err
	case <-ctx.Done():
		var none T
		return none, fmt.Errorf("%w: no answer: %w", ErrInjected, ctx.Err())
	}
}
