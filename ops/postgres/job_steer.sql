-- What an operator makes of a job. What its rate allowed while it was not running is not made up for.
update $schema.outbox_job
   set state = $2, version = version + 1, updated_at = clock_timestamp(), paced_at = clock_timestamp(),
       last_error = case when $2 = 'RUNNING' then null else last_error end,
       finished_at = case when $2 = 'CANCELLED' then clock_timestamp() end
 where id = $1
returning id, kind, destination, filter::text, rate_per_second, max_events, state, created_by, reason, from_seq, to_seq, position,
       affected, skipped, coalesce(last_error, ''), version,
       (extract(epoch from created_at) * 1000000)::bigint, (extract(epoch from updated_at) * 1000000)::bigint,
       (extract(epoch from finished_at) * 1000000)::bigint
