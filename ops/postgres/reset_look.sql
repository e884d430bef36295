-- The cursors of a destination, locked until the end of the transaction: how far each has come, who works on it, and the last number
-- that the log has handed out.
select c.position, case when c.lease_expires_at > clock_timestamp() then coalesce(c.lease_owner, '') else '' end,
       coalesce(c.paused_reason, ''), coalesce(c.paused_by, ''), c.paused_at is not null,
       (select case when is_called then last_value else 0 end from $schema.outbox_event_seq)
  from $schema.outbox_cursor c
 where c.destination = $1
 order by c.shard
   for update of c
