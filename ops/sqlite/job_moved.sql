-- How far a job has come. ?2 position, ?3 and ?4 what is added to affected and skipped, ?5 for how many microseconds of its rate
-- that was, ?6 of how many microseconds at most the rate may be made up for, ?7 the state, ?8 what it waits for.
update $schema.outbox_job
   set position = ?2, affected = affected + ?3, skipped = skipped + ?4,
       paced_at = max(paced_at, cast((julianday('now') - 2440587.5) * 86400000000 as integer) - ?6) + ?5,
       state = ?7, version = version + case when ?7 = state then 0 else 1 end,
       finished_at = case when ?7 <> 'RUNNING' then cast((julianday('now') - 2440587.5) * 86400000000 as integer) end,
       last_error = nullif(?8, ''), updated_at = cast((julianday('now') - 2440587.5) * 86400000000 as integer)
 where id = ?1
