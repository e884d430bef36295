insert into $schema.outbox_job
  (kind, destination, filter, rate_per_second, max_events, created_by, reason, from_seq, to_seq, position)
values ($1, $2, $3, $4, $5, $6, $7, $8::bigint, $9, $8::bigint - 1)
returning id, kind, destination, filter::text, rate_per_second, max_events, state, created_by, reason, from_seq, to_seq, position,
       affected, skipped, coalesce(last_error, ''), version,
       (extract(epoch from created_at) * 1000000)::bigint, (extract(epoch from updated_at) * 1000000)::bigint,
       (extract(epoch from finished_at) * 1000000)::bigint
