-- A running job, and for how many microseconds its rate has not been used. The transaction has the write lock already.
select id, kind, destination, filter, rate_per_second, max_events, state, created_by, reason, from_seq, to_seq, position,
       affected, skipped, coalesce(last_error, ''), version, created_at, updated_at, finished_at,
       cast((julianday('now') - 2440587.5) * 86400000000 as integer) - paced_at
  from $schema.outbox_job
 where id = ?1 and state = 'RUNNING'
