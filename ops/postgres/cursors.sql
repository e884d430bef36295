-- The cursors of all shards, with times in microseconds since the Unix epoch, and the database's clock.
select c.destination, to_json(c.topics)::text, c.position, c.in_flight_to,
       case when s.is_called then s.last_value else 0 end as last_seq,
       coalesce(c.lease_owner, ''),
       (extract(epoch from coalesce(c.lease_expires_at, clock_timestamp())) * 1000000)::bigint,
       (extract(epoch from c.paused_at) * 1000000)::bigint, coalesce(c.paused_reason, ''), coalesce(c.paused_by, ''),
       (extract(epoch from c.failing_since) * 1000000)::bigint, coalesce(c.last_error_code, ''), c.crash_count,
       (extract(epoch from clock_timestamp()) * 1000000)::bigint as now
  from $schema.outbox_cursor c
  cross join $schema.outbox_event_seq s
 order by c.destination, c.shard
