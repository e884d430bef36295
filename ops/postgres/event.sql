-- All of one event, by its number $1, or by its id $2 when the number is 0.
select seq, event_id, topic_name, partition_key, aggregate_type, aggregate_id, aggregate_version, event_type, event_version,
       schema_ref, coalesce(dedup_key, ''), (extract(epoch from created_at) * 1000000)::bigint,
       (extract(epoch from available_at) * 1000000)::bigint, payload::text, payload_bytes, headers::text
  from $schema.outbox_event
 where seq = case when $1::bigint > 0 then $1::bigint
                  else (select seq from $schema.outbox_event where event_id = $2::text limit 1) end
 limit 1
