-- The cursors of all shards, with times in microseconds since the Unix epoch, and the database's clock.
select c.destination, c.topics, c.position, c.in_flight_to,
       coalesce((select seq from sqlite_sequence where name = 'outbox_event'), 0) as last_seq,
       coalesce(c.lease_owner, ''), coalesce(c.lease_expires_at, 0),
       c.paused_at, coalesce(c.paused_reason, ''), coalesce(c.paused_by, ''),
       c.failing_since, coalesce(c.last_error_code, ''), c.crash_count,
       cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000 as now
  from $schema.outbox_cursor c
 order by c.destination, c.shard
