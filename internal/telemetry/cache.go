package telemetry

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/pillarbox-dev/pillarbox/ops"
)

// How often the database is asked, however often somebody scrapes or probes, and for how long it may think.
const (
	StatusEvery   = 5 * time.Second
	StatusTimeout = 2 * time.Second
)

// StatusCache keeps the last look at the outbox, for the gauges and for /readyz.
type StatusCache struct{ cache[ops.Status] }

// NewStatusCache returns a cache over Ops.Status. The logger gets its errors.
func NewStatusCache(look func(context.Context) (ops.Status, error), logger *slog.Logger) *StatusCache {
	return &StatusCache{cache[ops.Status]{look: look, logger: logger, what: "the outbox"}}
}

// cache keeps the last look at something in the database.
type cache[T any] struct {
	look   func(context.Context) (T, error)
	what   string
	logger *slog.Logger

	mu     sync.Mutex
	looked time.Time
	seen   T
	err    error
}

// Get asks the database, or returns what it said within the last StatusEvery, an error too. Those who ask at the same time wait
// for one answer.
func (c *cache[T]) Get() (T, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.looked.IsZero() && time.Since(c.looked) < StatusEvery {
		return c.seen, c.err
	}
	ctx, cancel := context.WithTimeout(context.Background(), StatusTimeout)
	defer cancel()
	c.seen, c.err = c.look(ctx)
	c.looked = time.Now()
	if c.err != nil {
		c.logger.Warn(c.what+" cannot be looked at", "error", c.err)
	}
	return c.seen, c.err
}
