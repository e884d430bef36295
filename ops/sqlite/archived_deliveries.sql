-- What became of the archived event ?1, in the columns of deliveries.sql.
select d.seq, e.event_id, e.topic_name, e.partition_key, e.aggregate_type, e.aggregate_id, e.aggregate_version,
       e.event_type, e.event_version, e.schema_ref, e.created_at, e.available_at,
       d.status, d.attempt_count, d.next_attempt_at, d.last_attempt_at, d.published_at,
       coalesce(d.locked_by, ''), d.locked_at,
       coalesce(d.endpoint, ''), coalesce(d.receipt, ''), coalesce(d.last_error_code, ''), coalesce(d.last_error_message, ''),
       0, d.destination
  from $schema.outbox_delivery_archive d
  join $schema.outbox_event_archive e on e.seq = d.seq
 where d.seq = ?1
 order by d.destination
 limit 1000
