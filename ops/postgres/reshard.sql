-- Divides the destination $1 into $2 shards. All begin at the position of the slowest: what the others have settled above it has a row
-- in the ledger, and is not handed out again. A gap stays one unless what has turned visible in it has a row. What a shard
-- had in flight beyond its position, also one that stopped before it had sent all of it again, may be sent twice. The epochs rise, so
-- nobody who had a lease settles any more; the row of a relay that died says so still. The crash count is $3 at most: at the next one
-- the shards try their suspects one by one, and only from then on is what they have in flight under suspicion.
with old as materialized (
  select * from $schema.outbox_cursor where destination = $1
), base as materialized (
  select min(position) as position, max(in_flight_to) filter (where in_flight_to > position) as in_flight_to,
         max(lease_owner) as lease_owner, max(lease_epoch) + 1 as lease_epoch, least(max(crash_count), $3::integer) as crash_count
    from old
), gap as materialized (
  select unnest(range_agg(numbers) * int8multirange(int8range(1, (select position + 1 from base)))) as numbers
    from old cross join unnest(gaps) as numbers
), settled as (
  select range_agg(int8range(e.seq, e.seq + 1)) as numbers
    from gap
   cross join lateral (select seq from $schema.outbox_event
                        where seq >= lower(gap.numbers) and seq < upper(gap.numbers) order by seq) e
   where exists (select from $schema.outbox_delivery d where d.destination = $1 and d.seq = e.seq)
), pause as (
  select paused_at, paused_reason, paused_by from old where paused_at is not null order by paused_at limit 1
)
insert into $schema.outbox_cursor as c
      (destination, shard, shards, position, gaps, in_flight_to, topics, lease_owner, lease_epoch, lease_expires_at,
       paused_at, paused_reason, paused_by, crash_count)
select $1, n, $2::integer, base.position,
       coalesce((select range_agg(numbers) from gap), '{}') - coalesce(settled.numbers, '{}'),
       coalesce(base.in_flight_to, base.position),
       (select topics from old order by shard limit 1), base.lease_owner, base.lease_epoch, clock_timestamp(),
       pause.paused_at, pause.paused_reason, pause.paused_by, base.crash_count
  from base cross join settled left join pause on true cross join generate_series(0, $2::integer - 1) as n
on conflict (destination, shard) do update
   set shards = excluded.shards, position = excluded.position, gaps = excluded.gaps, in_flight_to = excluded.in_flight_to,
       acquired_position = 0, lease_owner = excluded.lease_owner, lease_epoch = excluded.lease_epoch,
       lease_expires_at = excluded.lease_expires_at, settle_number = 0, asleep = false,
       paused_at = excluded.paused_at, paused_reason = excluded.paused_reason, paused_by = excluded.paused_by,
       failing_since = null, last_error_code = null, crash_count = excluded.crash_count, updated_at = clock_timestamp()
