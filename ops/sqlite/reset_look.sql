-- The cursors of a destination: how far each has come, who works on it, and the last number that the log has handed out. The
-- transaction has the write lock already.
select c.position,
       case when c.lease_expires_at > cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000
            then coalesce(c.lease_owner, '') else '' end,
       coalesce(c.paused_reason, ''), coalesce(c.paused_by, ''), c.paused_at is not null,
       coalesce((select seq from sqlite_sequence where name = 'outbox_event'), 0)
  from $schema.outbox_cursor c
 where c.destination = $1
 order by c.shard
