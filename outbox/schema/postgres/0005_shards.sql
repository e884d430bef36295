-- Destinations in several shards, each with a cursor and a lease of its own. Run it with search_path set as for 0001. Running it
-- again does no harm.

alter table outbox_cursor add column if not exists shards integer not null default 1;

-- The shard of an event: by its key, so that the events of a key stay in order; an event without one goes by its number. The first 32
-- bits of the MD5, modulo the number of shards.
create or replace function outbox_shard(key text, seq bigint, shards integer) returns integer
  language sql immutable parallel safe as $outbox$
  select case when shards <= 1 then 0
              else (('x' || substr(md5(case when key = '' then seq::text else key end), 1, 8))::bit(32)::bigint % shards)::integer
         end
$outbox$;

-- The view of 0002, for any number of shards: an event is as its own shard's cursor says.

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
               case when lease_owner is not null and lease_expires_at > now() then in_flight_to else 0 end as leased_to,
               shard, shards
          from outbox_cursor) c
  join outbox_event e on e.seq > c.position and c.shard = outbox_shard(e.partition_key, e.seq, c.shards)
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
  join outbox_event e on e.seq >= lower(gap) and e.seq < upper(gap) and c.shard = outbox_shard(e.partition_key, e.seq, c.shards)
 where e.seq <= c.position
   and (c.topics = '{}' or exists (
         select from unnest(c.topics) as pattern
          where e.topic_name like
                replace(replace(replace(replace(pattern, '\', '\\'), '%', '\%'), '_', '\_'), '*', '%')))
   and not exists (select from outbox_delivery d where d.destination = c.destination and d.seq = e.seq);
