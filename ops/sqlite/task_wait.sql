-- How many microseconds it is until a task may be claimed; less than 0: it may be now.
--
-- $1 name, $2 interval in microseconds
select max(min(due_at, coalesce(finished_at + $2, due_at)), case when owner is not null then lease_until else 0 end)
       - cast((julianday('now') - 2440587.5) * 86400000000 as integer)
  from $schema.outbox_task
 where name = $1
