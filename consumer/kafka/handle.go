package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/pillarbox-dev/pillarbox/outbox"
	"github.com/pillarbox-dev/pillarbox/outbox/inbox"
)

// work handles what is in the partition's queue until the partition goes.
func (c *Consumer[T]) work(p *partition) {
	for {
		batch := p.take(c.Batch)
		if len(batch) == 0 {
			return
		}
		if len(batch) > 1 && c.together(p, batch) {
			continue
		}
		for i := range batch {
			if !c.alone(p, batch[i]) {
				return
			}
		}
	}
}

// together tries a batch in one transaction. When it fails nothing has happened, and nothing is told: alone will find which
// one it was.
func (c *Consumer[T]) together(p *partition, batch []Message) bool {
	start := time.Now()
	first, f := c.attempt(p, batch)
	if f != nil {
		c.Log.Debug("a batch failed; its messages are handled one by one", "group", c.Group, "partition", p.String(), "error", f.err)
		return false
	}
	took := time.Since(start) / time.Duration(len(batch))
	for i, m := range batch {
		c.tell(Result{Kind: kindOf(first[i]), Message: m, Attempt: 1, Took: took})
	}
	p.settle(len(batch))
	return true
}

func kindOf(first bool) Kind {
	if first {
		return Handled
	}
	return Duplicate
}

// alone tries a message until it is handled or dead-lettered. It returns false when the partition goes before that.
func (c *Consumer[T]) alone(p *partition, m Message) bool {
	defer p.block("")
	attempts, inVain := 0, 0 // inVain of them in a row were not counted
	batch := []Message{m}
	for {
		start := time.Now()
		first, f := c.attempt(p, batch)
		m = batch[0] // with its id
		r := Result{Message: m, Attempt: attempts + 1, Took: time.Since(start)}
		if f == nil {
			r.Kind = kindOf(first[0])
			c.tell(r)
			p.settle(1)
			return true
		}
		r.Code, r.Err = f.code, f
		var delay time.Duration
		switch f.fate {
		case released:
			return false
		case again:
			inVain++
			r.Kind = Unavailable
			delay = min(c.backoff(inVain), unavailableMax)
		default:
			attempts, inVain = attempts+1, 0
			if f.fate == final || attempts >= c.MaxAttempts {
				return c.bury(p, r)
			}
			r.Kind = Failed
			delay = c.backoff(attempts)
		}
		c.tell(r)
		c.complain(r, inVain)
		p.block(f.code)
		if !wait(p.quit, max(delay, f.after)) {
			return false
		}
	}
}

// backoff is the wait after the nth failure in a row, counted from 1.
func (c *Consumer[T]) backoff(n int) time.Duration {
	delay := c.RetryMin
	for ; n > 1 && delay < c.RetryMax; n-- {
		delay *= 2
	}
	return min(delay, c.RetryMax)
}

// complain logs a failed attempt; of those that are not the message's fault, which may be many, the first and every tenth.
func (c *Consumer[T]) complain(r Result, inVain int) {
	if inVain > 1 && inVain%10 != 0 {
		return
	}
	c.Log.LogAttrs(context.Background(), slog.LevelWarn, "message not handled; it is tried again", c.about(r)...)
}

func (c *Consumer[T]) about(r Result) []slog.Attr {
	attrs := []slog.Attr{
		slog.String("group", c.Group), slog.String("topic", r.Message.Topic), slog.Int("partition", int(r.Message.Partition)),
		slog.Int64("offset", r.Message.Offset), slog.String("event_id", r.Message.EventID), slog.Int("attempt", r.Attempt),
		slog.String("code", r.Code), slog.String("error", r.Err.Error()),
	}
	var p *panicked
	if errors.As(r.Err, &p) {
		attrs = append(attrs, slog.String("stack", string(p.stack)))
	}
	return attrs
}

func (c *Consumer[T]) tell(r Result) {
	c.counters.count(r.Kind)
	c.Observe(r)
}

// ---- One attempt -------------------------------------------------------------------------------------------------

// attempt handles messages in one transaction. It tells for each whether it was the first time, or why nothing has happened.
// It gives the messages their event ids.
func (c *Consumer[T]) attempt(p *partition, batch []Message) ([]bool, *failure) {
	events, err := c.identify(batch)
	if err != nil {
		return nil, failedHandler(p.ctx, err, nil)
	}
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	case <-p.quit:
	}
	if p.gone() { // it may have got its turn as well
		return nil, &failure{fate: released}
	}
	ctx, cancel := context.WithTimeout(p.ctx, c.HandleTimeout)
	defer cancel()
	first, f := c.transact(ctx, batch, events)
	if f != nil && p.ctx.Err() != nil { // rolled back because the partition goes
		return nil, &failure{fate: released}
	}
	return first, f
}

// identify reads the event ids, and what goes to the inbox.
func (c *Consumer[T]) identify(batch []Message) (events []inbox.Event, err error) {
	for i := range batch {
		m := &batch[i]
		if err := m.identify(c.EventIDHeader); err != nil {
			return nil, err
		}
		event := inbox.Event{ID: m.EventID}
		if err := guarded(func() error { event.Body = c.SameBody(*m); return nil }); err != nil {
			return nil, err
		}
		events = append(events, event)
	}
	return events, nil
}

// transact begins a transaction and ends it, whatever happens in between.
func (c *Consumer[T]) transact(ctx context.Context, batch []Message, events []inbox.Event) ([]bool, *failure) {
	tx, end, err := c.Begin(ctx)
	if err != nil {
		return nil, &failure{code: CodeDatabase, fate: again, err: fmt.Errorf("begin: %w", err)}
	}
	first, err := c.Inbox.FirstOf(ctx, end, c.Consumer, events...)
	if err != nil {
		_ = end.Rollback() // what was wrong is known
		return nil, failedInbox(err)
	}
	for i, m := range batch {
		if !first[i] {
			continue
		}
		if err := guarded(func() error { return c.Handle(ctx, tx, m) }); err != nil {
			return nil, failedHandler(ctx, err, end.Rollback())
		}
	}
	return first, c.finish(ctx, end)
}

// finish commits. A context that has ended meanwhile rolls back: the handler did not notice.
func (c *Consumer[T]) finish(ctx context.Context, end outbox.Tx) *failure {
	if err := ctx.Err(); err != nil {
		return failedHandler(ctx, err, end.Rollback())
	}
	if err := end.Commit(); err != nil {
		_ = end.Rollback() // drivers end it with a failed commit; this is for those that do not
		return failedCommit(fmt.Errorf("commit: %w", err))
	}
	return nil
}

// guarded calls a function of the service and turns a panic into an error.
func guarded(call func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &panicked{value: value, stack: debug.Stack()}
		}
	}()
	return call()
}
