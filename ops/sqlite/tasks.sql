-- The tasks, with times in microseconds since the Unix epoch. There is one for each thing that is configured, so they are few.
select name,
       case when lease_until > cast((julianday('now') - 2440587.5) * 86400000000 as integer) then coalesce(owner, '') else '' end,
       due_at, started_at, finished_at, coalesce(last_error, ''), coalesce(state, '')
  from $schema.outbox_task
 order by name
 limit 1000
