-- The cursors of a destination, locked until the end of the transaction: how far each has come, and who works on it.
select c.position, case when c.lease_expires_at > clock_timestamp() then coalesce(c.lease_owner, '') else '' end
  from $schema.outbox_cursor c
 where c.destination = $1
 order by c.shard
   for update of c
