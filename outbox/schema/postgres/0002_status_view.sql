-- What operators look at, and the wake-up for producers that write plain SQL. Run it with search_path set as for 0001.
-- Running it again does no harm.

-- ---- One row per event and destination, with its status --------------------------------------------------------
--
-- Three parts that exclude each other: what has a row in the ledger, what lies above the cursor, and what turned visible in
-- one of the cursor's gaps. An event below the cursor without a row in the ledger was not this destination's to deliver
-- (its topics did not ask for it, it started later, or its ledger is off), so it is not shown: nothing here says PUBLISHED
-- that was not seen published.
--
-- now(), not clock_timestamp(): a volatile function would keep a condition on status from reaching the indexes below.

create or replace view outbox_status as
select e.seq as outbox_id, e.seq, e.event_id, e.topic_name, e.partition_key,
       e.aggregate_type, e.aggregate_id, e.aggregate_version,
       e.event_type, e.event_version, e.schema_ref, e.payload, e.payload_bytes, e.headers,
       d.destination, d.status, d.attempt_count, d.next_attempt_at, d.locked_by, d.locked_at, d.published_at,
       d.last_error_code, d.last_error_message, e.created_at,
       greatest(e.created_at, d.locked_at, d.last_attempt_at, d.published_at) as updated_at,
       d.endpoint, d.receipt, e.dedup_key, e.available_at
  from outbox_cursor c
  join outbox_delivery d on d.destination = c.destination
  join outbox_event e on e.seq = d.seq
 where c.shard = 0
union all
select e.seq, e.seq, e.event_id, e.topic_name, e.partition_key,
       e.aggregate_type, e.aggregate_id, e.aggregate_version,
       e.event_type, e.event_version, e.schema_ref, e.payload, e.payload_bytes, e.headers,
       c.destination,
       case when e.seq <= c.leased_to then 'PUBLISHING' else 'PENDING' end, 0, e.available_at,
       case when e.seq <= c.leased_to then c.lease_owner end,
       case when e.seq <= c.leased_to then c.updated_at end,
       null::timestamptz, null::text, null::text, e.created_at,
       e.created_at,
       null::text, null::text, e.dedup_key, e.available_at
  from (select destination, position, topics, lease_owner, updated_at,
               case when lease_owner is not null and lease_expires_at > now() then in_flight_to else 0 end as leased_to
          from outbox_cursor
         where shard = 0) c
  join outbox_event e on e.seq > c.position
 where (c.topics = '{}' or exists (
         select from unnest(c.topics) as pattern
          where e.topic_name like
                replace(replace(replace(replace(pattern, '\', '\\'), '%', '\%'), '_', '\_'), '*', '%')))
   and not exists (select from outbox_delivery d where d.destination = c.destination and d.seq = e.seq)
union all
select e.seq, e.seq, e.event_id, e.topic_name, e.partition_key,
       e.aggregate_type, e.aggregate_id, e.aggregate_version,
       e.event_type, e.event_version, e.schema_ref, e.payload, e.payload_bytes, e.headers,
       c.destination, 'PENDING', 0, e.available_at, null::text, null::timestamptz,
       null::timestamptz, null::text, null::text, e.created_at,
       e.created_at,
       null::text, null::text, e.dedup_key, e.available_at
  from outbox_cursor c
  cross join unnest(c.gaps) as gap
  join outbox_event e on e.seq >= lower(gap) and e.seq < upper(gap)
 where c.shard = 0
   and e.seq <= c.position
   and (c.topics = '{}' or exists (
         select from unnest(c.topics) as pattern
          where e.topic_name like
                replace(replace(replace(replace(pattern, '\', '\\'), '%', '\%'), '_', '\_'), '*', '%')))
   and not exists (select from outbox_delivery d where d.destination = c.destination and d.seq = e.seq);

-- ---- The wake-up for plain SQL ---------------------------------------------------------------------------------
--
-- Enqueue wakes a sleeping relay by itself. Producers that insert with plain SQL get the same when this is attached; without it
-- the relay's poll finds their events, at the latest after 250 ms:
--
--   create trigger outbox_event_wake after insert on outbox_event for each statement execute function outbox_wake();
--
-- It notifies only while a relay sleeps, because NOTIFY takes a cluster-wide lock at commit; and a transaction that has
-- notified cannot PREPARE TRANSACTION. It runs with its owner's rights, so that a producer needs none on the cursors.

create or replace function outbox_wake() returns trigger
  language plpgsql security definer set search_path from current as $outbox$
begin
  if exists (select from outbox_cursor where asleep) then
    perform pg_notify('pillarbox', tg_table_schema);
  end if;
  return null;
end
$outbox$;
