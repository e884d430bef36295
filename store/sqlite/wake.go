package sqlite

import (
	"context"
	"slices"
	"sync"
)

// wake passes on, within the process, that something was committed.
type wake struct {
	mu        sync.Mutex
	listeners []chan struct{}
}

// Wake tells the relays that listen to this Store that something was committed. A service that has the relay inside calls
// it after the commit of a transaction that enqueued events. It does not block and costs next to nothing.
func (s *Store) Wake() {
	s.wake.mu.Lock()
	defer s.wake.mu.Unlock()
	for _, c := range s.wake.listeners {
		select {
		case c <- struct{}{}:
		default: // it has one that it has not looked at yet
		}
	}
}

// Listen implements relay.Waker. The channel gets a value for each call of Wake, unless one is waiting in it already.
func (s *Store) Listen(ctx context.Context) (<-chan struct{}, error) {
	if err := ctx.Err(); err != nil {
		return nil, s.failed(ctx, "listen", err)
	}
	c := make(chan struct{}, 1)
	s.wake.mu.Lock()
	defer s.wake.mu.Unlock()
	s.wake.listeners = append(s.wake.listeners, c)
	context.AfterFunc(ctx, func() {
		s.wake.mu.Lock()
		defer s.wake.mu.Unlock()
		s.wake.listeners = slices.DeleteFunc(s.wake.listeners, func(other chan struct{}) bool { return other == c })
		close(c)
	})
	return c, nil
}
