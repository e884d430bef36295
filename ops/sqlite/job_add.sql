insert into $schema.outbox_job
  (kind, destination, filter, rate_per_second, max_events, created_by, reason, from_seq, to_seq, position)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?8 - 1)
returning id, kind, destination, filter, rate_per_second, max_events, state, created_by, reason, from_seq, to_seq, position,
       affected, skipped, coalesce(last_error, ''), version, created_at, updated_at, finished_at
