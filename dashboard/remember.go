package dashboard

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/pillarbox-dev/pillarbox/ops"
)

// errNobodyKnows says that this dashboard has not been given a function.
var errNobodyKnows = errors.New("this process does not know")

// remembered keeps an answer for a while, so that many pages cost the database one question. Those who ask at the same time wait
// for one answer; an error is kept as well.
type remembered[T any] struct {
	good time.Duration
	ask  func(context.Context) (T, error)

	mu    sync.Mutex
	asked time.Time
	value T
	err   error
}

func remember[T any](good time.Duration, ask func(context.Context) (T, error)) *remembered[T] {
	return &remembered[T]{good: good, ask: ask}
}

// get answers. The question goes on when the one who asked it leaves: others wait for the answer.
func (m *remembered[T]) get(ctx context.Context) (T, error) {
	if m.ask == nil {
		var none T
		return none, errNobodyKnows
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.asked.IsZero() && time.Since(m.asked) < m.good {
		return m.value, m.err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookTimeout)
	defer cancel()
	m.value, m.err = m.ask(ctx)
	m.asked = time.Now()
	return m.value, m.err
}

// forget lets the next one who asks get a new answer.
func (m *remembered[T]) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked = time.Time{}
}

// recents remember how deliveries went lately, for each destination on its own. The names are those of the status, so that there
// are no more of them than cursors.
type recents struct {
	good time.Duration
	ask  func(context.Context, string) (ops.Recent, error)

	mu  sync.Mutex
	all map[string]*remembered[ops.Recent]
}

func newRecents(good time.Duration, ask func(context.Context, string) (ops.Recent, error)) *recents {
	return &recents{good: good, ask: ask, all: map[string]*remembered[ops.Recent]{}}
}

func (r *recents) get(ctx context.Context, destination string) (ops.Recent, error) {
	r.mu.Lock()
	one := r.all[destination]
	if one == nil {
		one = remember(r.good, func(ctx context.Context) (ops.Recent, error) { return r.ask(ctx, destination) })
		r.all[destination] = one
	}
	r.mu.Unlock()
	return one.get(ctx)
}
