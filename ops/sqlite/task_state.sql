-- The state of a task. The transaction has the write lock already.
select coalesce(state, '')
  from $schema.outbox_task
 where name = $1
