package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// The textbook relay is the yardstick: a status column, claimed with `for update skip locked`, published, and marked. The
// event's columns are those of outbox_event. It leaves evidence per event, as Pillarbox does: the row is PUBLISHED
// with its time.
const textbookTable = `
create table textbook_outbox (
  outbox_id          bigint      generated always as identity primary key,
  event_id           text        not null unique,
  topic_name         text        not null,
  partition_key      text        not null default '',
  aggregate_type     text        not null default '',
  aggregate_id       text        not null default '',
  aggregate_version  bigint      not null default 0,
  event_type         text        not null,
  event_version      integer     not null default 1,
  schema_ref         text        not null default '',
  payload            json,
  headers            json        not null default '{}',
  status             text        not null default 'PENDING',
  attempt_count      integer     not null default 0,
  next_attempt_at    timestamptz not null default clock_timestamp(),
  locked_by          text,
  locked_at          timestamptz,
  published_at       timestamptz,
  last_error_code    text,
  last_error_message text,
  created_at         timestamptz not null default clock_timestamp()
)`

// textbook is a variant: the index that its claim is given, and how the claim and the mark are written.
type textbook struct {
	name  string
	ratio string // the key of Pillarbox's ratio to it
	index string
	claim string
	mark  string
	// markEach sends one mark for each event (all of a batch in one transaction and one round trip); otherwise one
	// statement marks the batch.
	markEach bool
}

const claimColumns = `o.outbox_id, o.event_id, o.topic_name, o.partition_key, o.aggregate_type, o.aggregate_id,
       o.aggregate_version, o.event_type, o.event_version, o.schema_ref, o.payload::text, o.headers::text, o.created_at`

// asWritten is the relay as the textbooks have it: everything that is due, the oldest first, and each event marked when
// it has been published.
func asWritten() textbook {
	return textbook{
		name:  "textbook",
		ratio: "ratio",
		index: `create index textbook_outbox_due on textbook_outbox (next_attempt_at, created_at)`,
		claim: `
with due as (
  select outbox_id from textbook_outbox
  where status in ('PENDING', 'FAILED') and next_attempt_at <= now()
  order by created_at limit $1 for update skip locked
)
update textbook_outbox o
set status = 'PUBLISHING', locked_by = 'bench', locked_at = now(), attempt_count = attempt_count + 1
from due where o.outbox_id = due.outbox_id
returning ` + claimColumns,
		mark: `
update textbook_outbox set status = 'PUBLISHED', published_at = now(), locked_by = null, locked_at = null
where outbox_id = $1`,
		markEach: true,
	}
}

// indexed is the best that can be made of the same table: the claim walks a partial index in order, and one statement
// marks a batch.
func indexed() textbook {
	return textbook{
		name:  "textbook_batched",
		ratio: "ratio_batched",
		index: `create index textbook_outbox_open on textbook_outbox (outbox_id) where status in ('PENDING', 'FAILED')`,
		claim: `
with due as (
  select outbox_id from textbook_outbox
  where status in ('PENDING', 'FAILED') and next_attempt_at <= now()
  order by outbox_id limit $1 for update skip locked
)
update textbook_outbox o
set status = 'PUBLISHING', locked_by = 'bench', locked_at = now(), attempt_count = attempt_count + 1
from due where o.outbox_id = due.outbox_id
returning ` + claimColumns,
		mark: `
update textbook_outbox set status = 'PUBLISHED', published_at = now(), locked_by = null, locked_at = null
where outbox_id = any($1)`,
	}
}

const textbookBatch = 500

// prepare makes the table with n events.
func (t textbook) prepare(ctx context.Context, pool *pgxpool.Pool, n int) error {
	for _, sql := range []string{textbookTable, t.index} {
		if _, err := pool.Exec(ctx, sql); err != nil {
			return fmt.Errorf("make the textbook table: %w", err)
		}
	}
	return fill(ctx, pool, "textbook_outbox", 0, n)
}

func (t textbook) drop(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := pool.Exec(ctx, "drop table textbook_outbox")
	return err
}

// drain publishes all that is there to the destination, with one worker, and checks that n events are marked.
func (t textbook) drain(ctx context.Context, s *session, pool *pgxpool.Pool, to relay.Destination, n int) (drained, error) {
	d := drained{events: n, settled: n}
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return d, err
	}
	defer conn.Release()
	meter, err := s.startMeter(ctx, pool)
	if err != nil {
		return d, err
	}
	start := time.Now()
	for claimed := 1; claimed > 0; {
		if claimed, err = t.work(ctx, conn.Conn(), to); err != nil {
			return d, fmt.Errorf("%s: %w", t.name, err)
		}
	}
	d.seconds = time.Since(start).Seconds()
	if d.spent, err = meter.stop(ctx); err != nil {
		return d, err
	}
	return d, expect(ctx, pool, n, "events are marked PUBLISHED",
		"select count(*) from textbook_outbox where status = 'PUBLISHED' and published_at is not null")
}

// work claims, publishes and marks one batch, each step committed on its own: a claim must be seen by others while it is
// being published.
func (t textbook) work(ctx context.Context, conn *pgx.Conn, to relay.Destination) (int, error) {
	rows, err := conn.Query(ctx, t.claim, textbookBatch)
	if err != nil {
		return 0, fmt.Errorf("claim: %w", err)
	}
	batch, err := pgx.CollectRows(rows, scanDelivery)
	if err != nil {
		return 0, fmt.Errorf("claim: %w", err)
	}
	if len(batch) == 0 {
		return 0, nil
	}
	published := make([]int64, 0, len(batch))
	for i, outcome := range to.Deliver(ctx, batch) {
		if outcome.Kind != relay.Published {
			return 0, fmt.Errorf("publish: %s %s", outcome.Kind, outcome.Code)
		}
		published = append(published, batch[i].Seq)
	}
	if err := t.markPublished(ctx, conn, published); err != nil {
		return 0, fmt.Errorf("mark: %w", err)
	}
	return len(batch), nil
}

func (t textbook) markPublished(ctx context.Context, conn *pgx.Conn, published []int64) error {
	if !t.markEach {
		_, err := conn.Exec(ctx, t.mark, published)
		return err
	}
	var marks pgx.Batch // sent at once, as one transaction
	for _, id := range published {
		marks.Queue(t.mark, id)
	}
	return conn.SendBatch(ctx, &marks).Close()
}

func scanDelivery(row pgx.CollectableRow) (relay.Delivery, error) {
	e := &relay.Event{}
	err := row.Scan(&e.Seq, &e.ID, &e.Topic, &e.Key, &e.AggregateType, &e.AggregateID, &e.AggregateVersion, &e.Type,
		&e.Version, &e.SchemaRef, &e.Payload, &e.Headers, &e.CreatedAt)
	return relay.Delivery{Event: e, Attempt: 1}, err
}
