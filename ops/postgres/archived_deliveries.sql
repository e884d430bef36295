-- What became of the archived event $1, in the columns of deliveries.sql.
select d.seq, e.event_id, e.topic_name, e.partition_key, e.aggregate_type, e.aggregate_id, e.aggregate_version,
       e.event_type, e.event_version, e.schema_ref,
       (extract(epoch from e.created_at) * 1000000)::bigint, (extract(epoch from e.available_at) * 1000000)::bigint,
       d.status, d.attempt_count,
       (extract(epoch from d.next_attempt_at) * 1000000)::bigint, (extract(epoch from d.last_attempt_at) * 1000000)::bigint,
       (extract(epoch from d.published_at) * 1000000)::bigint,
       coalesce(d.locked_by, ''), (extract(epoch from d.locked_at) * 1000000)::bigint,
       coalesce(d.endpoint, ''), coalesce(d.receipt, ''), coalesce(d.last_error_code, ''), coalesce(d.last_error_message, ''),
       0::bigint, d.destination
  from (select * from $schema.outbox_delivery_archive where seq = $1 order by seq limit 1000) d
 cross join lateral (select * from $schema.outbox_event_archive where seq = d.seq limit 1) e
 order by d.destination
