-- The state of a task, locked until the end of the transaction.
select coalesce(state::text, '')
  from $schema.outbox_task
 where name = $1
   for update
