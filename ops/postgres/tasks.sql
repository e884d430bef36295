-- The tasks, with times in microseconds since the Unix epoch. There is one for each thing that is configured, so they are few.
select name, case when lease_until > clock_timestamp() then coalesce(owner, '') else '' end,
       (extract(epoch from due_at) * 1000000)::bigint,
       (extract(epoch from started_at) * 1000000)::bigint,
       (extract(epoch from finished_at) * 1000000)::bigint,
       coalesce(last_error, ''), coalesce(state::text, '')
  from $schema.outbox_task
 order by name
 limit 1000
