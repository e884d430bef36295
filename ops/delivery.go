package ops

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// cursor is how far a destination has come, as far as it tells what an event without a row in the ledger is to it.
type cursor struct {
	destination string
	topics      relay.Topics
	shards      []shardCursor
	position    int64 // the lowest of its shards
	gaps        bool  // one of them has some
}

// shardCursor is how far one shard has come.
type shardCursor struct {
	position int64
	// leasedTo: what lies above the position up to here may be under way.
	leasedTo  int64
	owner     string
	updatedAt sql.NullInt64
	inGap     bool // the number that was asked for lies in one of its gaps
}

// lookAtCursors returns the cursors in the order of their destinations: of one, or of all when destination is "".
func lookAtCursors(ctx context.Context, tx *sql.Tx, query, destination string, seq int64) (all []cursor, err error) {
	err = each(ctx, tx, query, []any{destination, seq}, func(scan func(...any) error) error {
		var c cursor
		var s shardCursor
		var topics string
		if err := scan(&c.destination, &topics, &s.position, &s.leasedTo, &s.owner, &s.updatedAt, &c.gaps, &s.inGap); err != nil {
			return err
		}
		if n := len(all); n > 0 && all[n-1].destination == c.destination {
			all[n-1].add(s, c.gaps)
			return nil
		}
		if err := json.Unmarshal([]byte(topics), &c.topics); err != nil {
			return fmt.Errorf("topics of %s: %w", c.destination, err)
		}
		c.shards, c.position = []shardCursor{s}, s.position
		all = append(all, c)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the cursors: %w", err)
	}
	return all, nil
}

func (c *cursor) add(s shardCursor, gaps bool) {
	c.shards = append(c.shards, s)
	c.position = min(c.position, s.position)
	c.gaps = c.gaps || gaps
}

// of returns the cursor of the shard that a delivery belongs to.
func (c *cursor) of(d *Delivery) *shardCursor {
	return &c.shards[relay.ShardOf(d.Key, d.Seq, len(c.shards))]
}

// pending completes a delivery that has no row in the ledger, in the way of the view outbox_status.
func (c *cursor) pending(d *Delivery) {
	d.Status = relay.StatusPending
	d.NextAttemptAt = d.AvailableAt
	if s := c.of(d); d.Seq > s.position && d.Seq <= s.leasedTo {
		d.Status, d.LockedBy, d.LockedAt = relay.StatusPublishing, s.owner, moment(s.updatedAt)
	}
}

// wants tells whether an event without a row in the ledger is still to be delivered.
func (c *cursor) wants(d *Delivery) bool {
	s := c.of(d)
	return (d.Seq > s.position || s.inGap) && c.topics.Match(d.Topic)
}

// leasedTo is the highest number that may be under way.
func (c *cursor) leasedTo() (to int64) {
	for _, s := range c.shards {
		to = max(to, s.leasedTo)
	}
	return to
}

// looking says what is looked for among given numbers. The zero value restricts nothing.
type looking struct {
	rows   string       // "row": only with a row in the ledger; "none": only without one
	topics relay.Topics // of the destination
	Filter
	limit int
}

// lookAtDeliveries returns what the numbers are to the destination, in their order.
func lookAtDeliveries(ctx context.Context, tx *sql.Tx, query, destination string, seqs []int64, l looking) (
	all []Delivery, err error) {
	args := []any{destination, jsonList(seqs), l.rows, jsonList(l.Statuses), jsonList(l.Topics), jsonList(l.topics),
		l.Key, l.AggregateType, l.AggregateID, l.EventType, l.ErrorCode, l.Endpoint, micros(l.Since), micros(l.Until), l.limit}
	err = each(ctx, tx, query, args, func(scan func(...any) error) error {
		d, err := scanDelivery(scan)
		d.Destination = destination
		all = append(all, d)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the deliveries to %s: %w", destination, err)
	}
	return all, nil
}

func micros(t time.Time) sql.NullInt64 {
	if t.IsZero() {
		return sql.NullInt64{}
	}
	return sql.NullInt64{Int64: t.UnixMicro(), Valid: true}
}

// scanDelivery reads a row of deliveries.sql. more takes columns that follow.
func scanDelivery(scan func(...any) error, more ...any) (Delivery, error) {
	var d Delivery
	var status string
	var created, available, next, last, published, locked sql.NullInt64
	var lastAction int64
	err := scan(append([]any{&d.Seq, &d.EventID, &d.Topic, &d.Key, &d.AggregateType, &d.AggregateID, &d.AggregateVersion,
		&d.EventType, &d.EventVersion, &d.SchemaRef, &created, &available,
		&status, &d.Attempts, &next, &last, &published, &d.LockedBy, &locked,
		&d.Endpoint, &d.Receipt, &d.ErrorCode, &d.ErrorMessage, &lastAction}, more...)...)
	if err != nil {
		return d, err
	}
	if created.Valid {
		d.CreatedAt = *moment(created)
	}
	d.AvailableAt, d.NextAttemptAt, d.LastAttemptAt = moment(available), moment(next), moment(last)
	d.PublishedAt, d.LockedAt = moment(published), moment(locked)
	d.Status = relay.Status(status)
	if status != "" {
		// What changes with every attempt, every settle and every action.
		d.Version = fmt.Sprintf("%d.%s.%d.%d", lastAction, status, d.Attempts, last.Int64)
	}
	return d, nil
}
