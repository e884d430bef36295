package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// A settle moves the cursor if the epoch is still ours. What else is written is joined to the row that moved, so that nothing
// is written when the lease is lost.
//
// The row is found by its key, or by its place in the table: see places. Whoever else updates the row moves it: then nothing is
// found there, and the settle is tried again by the key.
//
// $1 destination, $2 epoch, $3 owner, $4 TTL in microseconds, $5 … $12 the cursor, $13 the place, $14 the number of the settle,
// from $15 on the arrays of deliveries.
const (
	settleCursor = `
with moved as (
  update {schema}.outbox_cursor
     set position = $5,
         gaps = $6::text::int8multirange,
         in_flight_to = $7,
         settle_number = greatest(settle_number, $14),
         crash_count = $8,
         asleep = $9,
         failing_since = case when $10::text <> '' then coalesce(failing_since, clock_timestamp()) end,
         last_error_code = nullif($10, ''),
         paused_at = case when $11::text = '' then paused_at else clock_timestamp() end,
         paused_reason = case when $11 = '' then paused_reason else $11 end,
         paused_by = case when $11 = '' then paused_by else $12 end,
         lease_expires_at = clock_timestamp() + $4::bigint * interval '1 microsecond',
         updated_at = clock_timestamp()
   where {found} and destination = $1 and shard = {shard} and lease_epoch = $2 and lease_owner = $3
     and ($14::bigint = 0 or settle_number < $14)
  returning updated_at as at, ctid as place
)`

	// One of these replaces {found}.
	foundByKey   = `$13::tid is null`
	foundByPlace = `ctid = $13`

	settlePublished = `, published as (
  insert into {schema}.outbox_delivery (destination, seq, status, attempt_count, published_at, receipt)
  select $1, p.seq, 'PUBLISHED', 1, moved.at, nullif(p.receipt, '')
    from moved cross join unnest($15::bigint[], $16::text[]) as p (seq, receipt)
)`

	settleRows = `, written as (
  insert into {schema}.outbox_delivery as d (destination, seq, status, attempt_count, published_at, next_attempt_at,
         last_attempt_at, locked_at, locked_by, endpoint, partition_key, receipt, last_error_code, last_error_message)
  select $1, r.seq, r.status, r.attempts,
         case when r.status = 'PUBLISHED' then moved.at end,
         moved.at + r.next_in * interval '1 microsecond',
         case when r.attempted then moved.at end,
         case when r.status = 'PUBLISHING' then moved.at end,
         case when r.status = 'PUBLISHING' then $3 end,
         case when r.status <> 'PUBLISHED' then r.endpoint end,
         r.partition_key, nullif(r.receipt, ''), nullif(r.code, ''), nullif(r.message, '')
    from moved cross join unnest($15::bigint[], $16::text[], $17::integer[], $18::boolean[], $19::bigint[],
                                 $20::text[], $21::text[], $22::text[], $23::text[], $24::text[])
         as r (seq, status, attempts, attempted, next_in, endpoint, partition_key, receipt, code, message)
  on conflict (destination, seq) do update
     set status = excluded.status, attempt_count = excluded.attempt_count, published_at = excluded.published_at,
         next_attempt_at = excluded.next_attempt_at,
         last_attempt_at = coalesce(excluded.last_attempt_at, d.last_attempt_at),
         locked_at = excluded.locked_at, locked_by = excluded.locked_by, endpoint = excluded.endpoint,
         partition_key = excluded.partition_key, receipt = excluded.receipt,
         last_error_code = excluded.last_error_code, last_error_message = excluded.last_error_message
)`

	// The xid is taken after every read that came before this settle: it bounds the gaps that those noticed.
	settleEnd = `
select pg_current_xact_id() as bound, moved.at, moved.place from moved`

	// repeatedSQL is for a settle that moved nothing. It tells the number of the last settle of the lease; when that is the one
	// that was tried ($5), its answer was lost, and the lease is prolonged.
	repeatedSQL = `
with lease as materialized (
  select settle_number
    from {schema}.outbox_cursor
   where destination = $1 and shard = {shard} and lease_epoch = $2 and lease_owner = $3
     for no key update
), prolonged as (
  update {schema}.outbox_cursor
     set lease_expires_at = clock_timestamp() + $4::bigint * interval '1 microsecond', updated_at = clock_timestamp()
   where destination = $1 and shard = {shard} and (select settle_number = $5 from lease)
)
select settle_number from lease`

	// copySQL appends many published rows and ends the transaction in the same round trip. COPY writes less WAL than INSERT
	// does and needs less CPU.
	copySQL = `
copy {schema}.outbox_delivery (seq, published_at, attempt_count, destination, status, receipt) from stdin (format binary);
commit`
)

// copyFrom is the number of published rows from which COPY is worth its second round trip.
const copyFrom = 128

// Settle implements relay.Ledger.
func (s *Store) Settle(ctx context.Context, l relay.LeaseID, st relay.Settlement) (relay.Settled, error) {
	place := s.places.find(l)
	m, err := s.settle(ctx, l, st, place)
	if movedNothing(err) && place.Valid {
		m, err = s.settle(ctx, l, st, pgtype.TID{})
	}
	if movedNothing(err) {
		return relay.Settled{}, s.repeated(ctx, l, st.Number)
	}
	if err != nil {
		return relay.Settled{}, s.failed("settle "+l.Destination, err)
	}
	s.places.moved(l, m.place)
	return relay.Settled{Bound: m.bound}, nil
}

// repeated tells why a settle moved nothing; nil: it was settled before.
func (s *Store) repeated(ctx context.Context, l relay.LeaseID, number int64) error {
	if number == 0 {
		return relay.ErrLeaseLost
	}
	var last int64
	err := s.pool.QueryRow(ctx, s.statements(l.Shard).repeated, l.Destination, l.Epoch, l.Owner, l.TTL.Microseconds(), number).Scan(&last)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return relay.ErrLeaseLost
	case err == nil && last != number:
		err = fmt.Errorf("number %d comes after %d, so it was given up: nothing was written", number, last)
	}
	if err != nil {
		return s.failed("settle "+l.Destination, err)
	}
	return nil
}

// moved is what a settle returns.
type moved struct {
	bound uint64
	at    time.Time
	place pgtype.TID
}

func (m *moved) scan(row pgx.Row) error { return row.Scan(&m.bound, &m.at, &m.place) }

// settle writes the published ones as new rows, and when one of them has a row already, over what is there. pgx.ErrNoRows: the
// lease is lost, or the place is out of date.
func (s *Store) settle(ctx context.Context, l relay.LeaseID, st relay.Settlement, place pgtype.TID) (m moved, err error) {
	args := cursorArgs(l, st, place)
	texts := s.statements(l.Shard)
	sql := texts.settleByKey
	if place.Valid {
		sql = texts.settleByPlace
	}
	switch {
	case s.onSettle != nil && len(st.Published)+len(st.Rows) > 0:
		return s.settleWithHook(ctx, l, st, sql, args)
	case len(st.Published) >= copyFrom:
		m, err = s.settleCopy(ctx, l, st, sql, args)
	case len(st.Published) > 0 && len(st.Rows) == 0:
		err = m.scan(s.pool.QueryRow(ctx, sql.published, append(args, receiptArgs(st.Published)...)...))
	case len(st.Published)+len(st.Rows) > 0:
		err = m.scan(s.pool.QueryRow(ctx, sql.rows, append(args, rowArgs(allRows(st))...)...))
	default:
		err = m.scan(s.pool.QueryRow(ctx, sql.cursor, args...))
	}
	if isDuplicate(err) { // somebody moved the cursor back: this was published before
		err = m.scan(s.pool.QueryRow(ctx, sql.rows, append(args, rowArgs(allRows(st))...)...))
	}
	return m, err
}

// settleCopy is a settle in two round trips: the cursor and the rows, then the published ones and the commit.
func (s *Store) settleCopy(
	ctx context.Context, l relay.LeaseID, st relay.Settlement, texts settleStatements, args []any,
) (m moved, err error) {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return m, err
	}
	defer conn.Release() // which closes a connection that is still in a transaction

	sql := texts.cursor
	if len(st.Rows) > 0 {
		sql, args = texts.rows, append(args, rowArgs(st.Rows)...)
	}
	var batch pgx.Batch
	batch.Queue("begin isolation level read committed")
	batch.Queue(sql, args...).QueryRow(m.scan)
	if err := conn.SendBatch(ctx, &batch).Close(); err != nil {
		rollback(ctx, conn)
		return m, err
	}
	rows := bytes.NewReader(copyRows(l.Destination, m.at, st.Published))
	tag, err := conn.Conn().PgConn().CopyFrom(ctx, rows, s.statements(l.Shard).copy)
	if err != nil {
		rollback(ctx, conn)
		return m, err
	}
	if tag.String() != "COMMIT" {
		return m, fmt.Errorf("the transaction ended with %s instead of COMMIT", tag)
	}
	return m, nil
}

// rollback makes the connection fit for use again. The error that led here tells more than one of its own.
func rollback(ctx context.Context, conn *pgxpool.Conn) {
	if !conn.Conn().IsClosed() {
		_, _ = conn.Exec(ctx, "rollback") // if it fails, Release closes the connection
	}
}

// movedNothing says that the settle found no cursor row. A hook that found no row of its own is another matter.
func movedNothing(err error) bool {
	return errors.Is(err, pgx.ErrNoRows) && !errors.As(err, new(*hookError))
}

// isDuplicate says that a row stands already where one was to be appended.
func isDuplicate(err error) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && pgErr.Code == "23505"
}
