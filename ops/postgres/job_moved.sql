-- How far a job has come. $2 position, $3 and $4 what is added to affected and skipped, $5 for how many microseconds of its rate
-- that was, $6 of how many microseconds at most the rate may be made up for, $7 the state, $8 what it waits for.
update $schema.outbox_job
   set position = $2, affected = affected + $3, skipped = skipped + $4,
       paced_at = greatest(paced_at, clock_timestamp() - $6::bigint * interval '1 microsecond')
                + $5::bigint * interval '1 microsecond',
       state = $7, version = version + case when $7 = state then 0 else 1 end,
       finished_at = case when $7 <> 'RUNNING' then clock_timestamp() end,
       last_error = nullif($8, ''), updated_at = clock_timestamp()
 where id = $1
