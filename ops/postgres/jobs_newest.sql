-- A page of the jobs, the newest first: at most $2, behind the number $1.
select id, kind, destination, filter::text, rate_per_second, max_events, state, created_by, reason, from_seq, to_seq, position,
       affected, skipped, coalesce(last_error, ''), version,
       (extract(epoch from created_at) * 1000000)::bigint, (extract(epoch from updated_at) * 1000000)::bigint,
       (extract(epoch from finished_at) * 1000000)::bigint
  from $schema.outbox_job
 where id < $1
 order by id desc
 limit $2
