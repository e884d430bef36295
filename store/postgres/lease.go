package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pillarbox-dev/pillarbox/relay"
)

const (
	// acquireSQL takes a lease that is free or has expired. Whoever settles or acquires at this moment holds the lock of the row;
	// free waits for it and looks again, so of many that try at once one gets it.
	//
	// $1 destination, $2 owner, $3 TTL in microseconds, $4 topics, $5 relay.IsolateAfter
	acquireSQL = `
with free as materialized (
  select destination, shard, lease_owner is not null as unclean
    from {schema}.outbox_cursor
   where destination = $1 and shard = {shard} and shards = {shards}
     and (lease_owner is null or lease_expires_at is null or lease_expires_at <= clock_timestamp())
     for no key update
)
update {schema}.outbox_cursor c
   set lease_owner = $2,
       lease_epoch = c.lease_epoch + 1,
       settle_number = 0,
       lease_expires_at = clock_timestamp() + $3::bigint * interval '1 microsecond',
       acquired_position = c.position,
       topics = $4,
       asleep = false,
       crash_count = c.crash_count
                   + (free.unclean and (c.position = c.acquired_position or c.crash_count >= $5))::integer,
       updated_at = clock_timestamp()
  from free
 where c.destination = free.destination and c.shard = free.shard
returning c.lease_epoch, c.position, c.in_flight_to, free.unclean, c.crash_count,
          array(select lower(gap) from unnest(c.gaps) as gap order by gap) as gap_first,
          array(select upper(gap) - 1 from unnest(c.gaps) as gap order by gap) as gap_last,
          {pause}, {last_seq}`

	// holderSQL tells who holds a lease, for how many microseconds yet, and whether somebody does; and how many shards the
	// destination has. No row: it has none, it is new.
	holderSQL = `
select d.shards, coalesce(c.lease_owner, ''),
       greatest(0, coalesce(extract(epoch from c.lease_expires_at - clock_timestamp()) * 1000000, 0))::bigint,
       coalesce(c.lease_owner is not null and c.lease_expires_at > clock_timestamp(), false),
       {pause}
  from (select destination, shards from {schema}.outbox_cursor where destination = $1 order by shard limit 1) d
  left join {schema}.outbox_cursor c on c.destination = d.destination and c.shard = {shard}`

	// createSQL makes the cursors of a new destination, at the beginning of the log. Of many that try at once, the one that makes
	// the first shard makes the others.
	createSQL = `
with log as materialized (
  select 0::bigint as last, '{}'::int8multirange as gaps
)` + createCursors

	createCursors = `, first as (
  insert into {schema}.outbox_cursor (destination, topics, shards, position, in_flight_to, gaps)
  select $1, $2, {shards}, last, last, gaps from log
  on conflict do nothing
  returning position, gaps
)
insert into {schema}.outbox_cursor (destination, topics, shards, shard, position, in_flight_to, gaps)
select $1, $2, {shards}, n, first.position, first.position, first.gaps
  from first cross join generate_series(1, {shards} - 1) as n`

	// createAtEndSQL makes it behind the last number that was handed out. What is not visible among the last 100,000 numbers
	// is a gap: a transaction that is open at this moment commits later, so its events are not skipped.
	createAtEndSQL = `
with numbers as materialized (
  select {last_seq} as last
), bounds as (
  select greatest(last - 100000, 0) as seq, last from numbers
  union all
  select e.seq, n.last from numbers n join {schema}.outbox_event e on e.seq > n.last - 100000 and e.seq <= n.last
), steps as (
  select seq, lead(seq, 1, last + 1) over (order by seq) as next from bounds
), log as materialized (
  select last, coalesce((select range_agg(int8range(seq + 1, next)) from steps where next > seq + 1), '{}') as gaps
    from numbers
)` + createCursors

	renewSQL = `
update {schema}.outbox_cursor c
   set lease_expires_at = clock_timestamp() + $4::bigint * interval '1 microsecond', updated_at = clock_timestamp()
 where c.destination = $1 and c.shard = {shard} and c.lease_epoch = $2 and c.lease_owner = $3
returning {pause}, {last_seq}`

	releaseSQL = `
update {schema}.outbox_cursor
   set lease_owner = null, lease_expires_at = null, asleep = false, updated_at = clock_timestamp()
 where destination = $1 and shard = {shard} and lease_epoch = $2 and lease_owner = $3`

	// pauseSQL replaces {pause}: the reason, "" when the destination is not paused, and by whom.
	pauseSQL = `case when c.paused_at is null then '' else coalesce(nullif(c.paused_reason, ''), 'paused') end,
       case when c.paused_at is null then '' else coalesce(c.paused_by, '') end`

	// lastSeqSQL replaces {last_seq}: the highest number that was handed out.
	lastSeqSQL = `(select case when is_called then last_value else last_value - 1 end from {schema}.outbox_event_seq)`
)

// Acquire implements relay.Leases.
func (s *Store) Acquire(ctx context.Context, r relay.AcquireRequest) (relay.Lease, bool, error) {
	lease, ok, err := s.acquire(ctx, r)
	if err != nil {
		return relay.Lease{}, false, s.failed("acquire the lease of "+r.Destination, err)
	}
	return lease, ok, nil
}

func (s *Store) acquire(ctx context.Context, r relay.AcquireRequest) (lease relay.Lease, ok bool, err error) {
	// Between two of these statements others may create, take or free the lease; each such turn is another relay's success.
	const tries = 3
	for try := 1; ; try++ {
		lease, err = s.takeLease(ctx, r)
		if !errors.Is(err, pgx.ErrNoRows) {
			return lease, err == nil, err
		}
		var held bool
		lease, held, err = s.holder(ctx, r)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			if err := s.create(ctx, r); err != nil {
				return relay.Lease{}, false, err
			}
		case err != nil || held || try >= tries:
			return lease, false, err
		}
	}
}

func (s *Store) takeLease(ctx context.Context, r relay.AcquireRequest) (relay.Lease, error) {
	lease := relay.Lease{
		LeaseID:   relay.LeaseID{Destination: r.Destination, Shard: r.Shard, Owner: r.Owner, TTL: r.TTL},
		ExpiresIn: r.TTL,
	}
	var first, last []int64
	row := s.pool.QueryRow(ctx, s.statements(r.Shard).acquire, r.Destination, r.Owner, r.TTL.Microseconds(), textArray(r.Topics),
		relay.IsolateAfter)
	err := row.Scan(&lease.Epoch, &lease.Position, &lease.InFlightTo, &lease.Unclean, &lease.CrashCount,
		&first, &last, &lease.Pause.Reason, &lease.Pause.By, &lease.LastSeq)
	for i := range first {
		lease.Gaps = append(lease.Gaps, relay.Range{First: first[i], Last: last[i]})
	}
	return lease, err
}

func (s *Store) holder(ctx context.Context, r relay.AcquireRequest) (lease relay.Lease, held bool, err error) {
	var shards int
	var expiresIn int64
	err = s.pool.QueryRow(ctx, s.statements(r.Shard).holder, r.Destination).
		Scan(&shards, &lease.Owner, &expiresIn, &held, &lease.Pause.Reason, &lease.Pause.By)
	lease.ExpiresIn = time.Duration(expiresIn) * time.Microsecond
	if err == nil && shards != r.Shard.Count() {
		err = fmt.Errorf("%w: it has %d in the database, and %d in the configuration. Set the configuration back, or stop the relays "+
			"and run 'pillarbox reshard %s --shards %d --reason …'", relay.ErrShards, shards, r.Shard.Count(), r.Destination, r.Shard.Count())
	}
	return lease, held, err
}

func (s *Store) create(ctx context.Context, r relay.AcquireRequest) error {
	texts := s.statements(r.Shard)
	sql := texts.create
	if r.StartAtEnd {
		sql = texts.createAtEnd
	}
	_, err := s.pool.Exec(ctx, sql, r.Destination, textArray(r.Topics))
	return err
}

// textArray is never null, which the column does not allow.
func textArray(texts relay.Topics) []string { return append([]string{}, texts...) }

// Renew implements relay.Leases.
func (s *Store) Renew(ctx context.Context, l relay.LeaseID) (relay.Renewal, error) {
	var r relay.Renewal
	err := s.pool.QueryRow(ctx, s.statements(l.Shard).renew, l.Destination, l.Epoch, l.Owner, l.TTL.Microseconds()).
		Scan(&r.Pause.Reason, &r.Pause.By, &r.LastSeq)
	if errors.Is(err, pgx.ErrNoRows) {
		return relay.Renewal{}, relay.ErrLeaseLost
	}
	if err != nil {
		return relay.Renewal{}, s.failed("renew the lease of "+l.Destination, err)
	}
	return r, nil
}

// Release implements relay.Leases.
func (s *Store) Release(ctx context.Context, l relay.LeaseID) error {
	if _, err := s.pool.Exec(ctx, s.statements(l.Shard).release, l.Destination, l.Epoch, l.Owner); err != nil {
		return s.failed("release the lease of "+l.Destination, err)
	}
	return nil
}
