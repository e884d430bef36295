-- The pause as it stands. The transaction has the write lock already.
select coalesce(paused_reason, ''), coalesce(paused_by, ''), paused_at is not null
  from $schema.outbox_cursor
 where destination = $1 and shard = 0
