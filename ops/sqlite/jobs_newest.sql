-- A page of the jobs, the newest first: at most ?2, behind the number ?1.
select id, kind, destination, filter, rate_per_second, max_events, state, created_by, reason, from_seq, to_seq, position,
       affected, skipped, coalesce(last_error, ''), version, created_at, updated_at, finished_at
  from $schema.outbox_job
 where id < ?1
 order by id desc
 limit ?2
