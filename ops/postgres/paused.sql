-- The pause as it stands, of a shard that is paused if there is one, locked until the end of the transaction.
select coalesce(paused_reason, ''), coalesce(paused_by, ''), paused_at is not null
  from $schema.outbox_cursor
 where destination = $1
 order by paused_at nulls last, shard
   for update
