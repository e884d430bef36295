-- Copies the events $1 (a JSON list of numbers) to the archive.
insert into $schema.outbox_event_archive
      (seq, event_id, topic_name, partition_key, aggregate_type, aggregate_id, aggregate_version, event_type, event_version,
       schema_ref, payload, payload_bytes, headers, dedup_key, available_at, created_at)
select seq, event_id, topic_name, partition_key, aggregate_type, aggregate_id, aggregate_version, event_type, event_version,
       schema_ref, payload, payload_bytes, headers, dedup_key, available_at, created_at
  from $schema.outbox_event
 where seq = any (array(select value::bigint from json_array_elements_text($1::json)))
