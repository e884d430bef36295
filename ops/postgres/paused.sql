-- The pause as it stands, locked until the end of the transaction.
select coalesce(paused_reason, ''), coalesce(paused_by, ''), paused_at is not null
  from $schema.outbox_cursor
 where destination = $1 and shard = 0
   for update
