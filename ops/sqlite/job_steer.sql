-- What an operator makes of a job. What its rate allowed while it was not running is not made up for.
update $schema.outbox_job
   set state = ?2, version = version + 1,
       updated_at = cast((julianday('now') - 2440587.5) * 86400000000 as integer),
       paced_at = cast((julianday('now') - 2440587.5) * 86400000000 as integer),
       last_error = case when ?2 = 'RUNNING' then null else last_error end,
       finished_at = case when ?2 = 'CANCELLED' then cast((julianday('now') - 2440587.5) * 86400000000 as integer) end
 where id = ?1
returning id, kind, destination, filter, rate_per_second, max_events, state, created_by, reason, from_seq, to_seq, position,
       affected, skipped, coalesce(last_error, ''), version, created_at, updated_at, finished_at
