-- All of one event, by its number ?1, or by its id ?2 when the number is 0.
select seq, event_id, topic_name, partition_key, aggregate_type, aggregate_id, aggregate_version, event_type, event_version,
       schema_ref, coalesce(dedup_key, ''), created_at, available_at, payload, payload_bytes, headers
  from $schema.outbox_event
 where seq = case when ?1 > 0 then ?1 else (select seq from $schema.outbox_event where event_id = ?2 limit 1) end
 limit 1
