-- What operators look at: one row per event and destination, with its status; times as ISO 8601 text in UTC. Running it
-- again does no harm.
--
-- Two parts that exclude each other: what has a row in the ledger, and what lies above the cursor. An event below the cursor
-- without a row in the ledger was not this destination's to deliver (its topics did not ask for it, it started later, or its
-- ledger is off), so it is not shown: nothing here says PUBLISHED that was not seen published.

create view if not exists outbox_status as
select seq as outbox_id, seq, event_id, topic_name, partition_key, aggregate_type, aggregate_id, aggregate_version,
       event_type, event_version, schema_ref, payload, payload_bytes, headers,
       destination, status, attempt_count,
       strftime('%Y-%m-%dT%H:%M:%S', next_attempt_at / 1000000, 'unixepoch')
         || printf('.%06dZ', next_attempt_at % 1000000) as next_attempt_at,
       locked_by,
       strftime('%Y-%m-%dT%H:%M:%S', locked_at / 1000000, 'unixepoch')
         || printf('.%06dZ', locked_at % 1000000) as locked_at,
       strftime('%Y-%m-%dT%H:%M:%S', published_at / 1000000, 'unixepoch')
         || printf('.%06dZ', published_at % 1000000) as published_at,
       last_error_code, last_error_message,
       strftime('%Y-%m-%dT%H:%M:%S', created_at / 1000000, 'unixepoch')
         || printf('.%06dZ', created_at % 1000000) as created_at,
       strftime('%Y-%m-%dT%H:%M:%S', updated_at / 1000000, 'unixepoch')
         || printf('.%06dZ', updated_at % 1000000) as updated_at,
       endpoint, receipt, dedup_key,
       strftime('%Y-%m-%dT%H:%M:%S', available_at / 1000000, 'unixepoch')
         || printf('.%06dZ', available_at % 1000000) as available_at
  from (
    select e.seq, e.event_id, e.topic_name, e.partition_key, e.aggregate_type, e.aggregate_id, e.aggregate_version,
           e.event_type, e.event_version, e.schema_ref, e.payload, e.payload_bytes, e.headers,
           d.destination, d.status, d.attempt_count, d.next_attempt_at, d.locked_by, d.locked_at, d.published_at,
           d.last_error_code, d.last_error_message, e.created_at,
           max(e.created_at, coalesce(d.locked_at, 0), coalesce(d.last_attempt_at, 0), coalesce(d.published_at, 0)) as updated_at,
           d.endpoint, d.receipt, e.dedup_key, e.available_at
      from outbox_cursor c
      join outbox_delivery d on d.destination = c.destination
      join outbox_event e on e.seq = d.seq
     where c.shard = 0
    union all
    select e.seq, e.event_id, e.topic_name, e.partition_key, e.aggregate_type, e.aggregate_id, e.aggregate_version,
           e.event_type, e.event_version, e.schema_ref, e.payload, e.payload_bytes, e.headers,
           c.destination, case when e.seq <= c.leased_to then 'PUBLISHING' else 'PENDING' end, 0, e.available_at,
           case when e.seq <= c.leased_to then c.lease_owner end,
           case when e.seq <= c.leased_to then c.updated_at end, null,
           null, null, e.created_at,
           e.created_at,
           null, null, e.dedup_key, e.available_at
      from (select destination, position, topics, lease_owner, updated_at,
                   case when lease_owner is not null
                         and lease_expires_at > cast((julianday('now') - 2440587.5) * 86400000000 as integer)
                        then in_flight_to else 0 end as leased_to
              from outbox_cursor
             where shard = 0) c
      join outbox_event e on e.seq > c.position
     where (c.topics = '[]' or exists (
              select 1 from json_each(c.topics) as pattern
               where e.topic_name glob replace(replace(pattern.value, '[', '[[]'), '?', '[?]')))
       and not exists (select 1 from outbox_delivery d where d.destination = c.destination and d.seq = e.seq)
  );
