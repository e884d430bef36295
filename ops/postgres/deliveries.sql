-- What the numbers $2 (a JSON array) are to the destination $1: the event, its row in the ledger, and the last thing that an
-- operator did to the event. With $3 = 'row' only what has a row, with 'none' only what has none. Then what a filter asks for,
-- where '' , '[]' and null ask for nothing: $4 statuses, $5 topics (patterns), $6 topics of the destination, $7 partition_key,
-- $8 aggregate_type, $9 aggregate_id, $10 event_type, $11 last_error_code, $12 endpoint, $13 and $14 created_at in microseconds;
-- at most $15 rows, in the order of the numbers given.
with topic as materialized (
  select replace(replace(replace(replace(p, '\', '\\'), '%', '\%'), '_', '\_'), '*', '%') as pattern
    from json_array_elements_text($5::json) p
), wanted as materialized (
  select replace(replace(replace(replace(p, '\', '\\'), '%', '\%'), '_', '\_'), '*', '%') as pattern
    from json_array_elements_text($6::json) p
)
select n.seq, coalesce(e.event_id, ''), coalesce(e.topic_name, ''), coalesce(e.partition_key, ''),
       coalesce(e.aggregate_type, ''), coalesce(e.aggregate_id, ''), coalesce(e.aggregate_version, 0),
       coalesce(e.event_type, ''), coalesce(e.event_version, 0), coalesce(e.schema_ref, ''),
       (extract(epoch from e.created_at) * 1000000)::bigint, (extract(epoch from e.available_at) * 1000000)::bigint,
       coalesce(d.status, ''), coalesce(d.attempt_count, 0),
       (extract(epoch from d.next_attempt_at) * 1000000)::bigint, (extract(epoch from d.last_attempt_at) * 1000000)::bigint,
       (extract(epoch from d.published_at) * 1000000)::bigint,
       coalesce(d.locked_by, ''), (extract(epoch from d.locked_at) * 1000000)::bigint,
       coalesce(d.endpoint, ''), coalesce(d.receipt, ''), coalesce(d.last_error_code, ''), coalesce(d.last_error_message, ''),
       coalesce((select a.id from $schema.outbox_operator_action a where a.seq = n.seq order by a.id desc limit 1), 0)
  from (select number::bigint as seq, place from json_array_elements_text($2::json) with ordinality as given(number, place)) n
  left join lateral (
    select status, attempt_count, next_attempt_at, last_attempt_at, published_at, locked_by, locked_at, endpoint, receipt,
           last_error_code, last_error_message
      from $schema.outbox_delivery
     where destination = $1 and seq = n.seq
     limit 1) d on true
  left join lateral (
    select event_id, topic_name, partition_key, aggregate_type, aggregate_id, aggregate_version, event_type, event_version,
           schema_ref, created_at, available_at
      from $schema.outbox_event
     where seq = n.seq
     limit 1) e on true
 where ($3::text = '' or (d.status is not null) = ($3::text = 'row'))
   and (d.status is not null or e.event_id is not null)
   and ($4::text = '[]' or d.status in (select json_array_elements_text($4::json)))
   and ($5::text = '[]' or exists (select from topic where e.topic_name like topic.pattern))
   and ($6::text = '[]' or exists (select from wanted where e.topic_name like wanted.pattern))
   and ($7::text = '' or e.partition_key = $7::text)
   and ($8::text = '' or e.aggregate_type = $8::text)
   and ($9::text = '' or e.aggregate_id = $9::text)
   and ($10::text = '' or e.event_type = $10::text)
   and ($11::text = '' or d.last_error_code = $11::text)
   and ($12::text = '' or d.endpoint = $12::text)
   and ($13::bigint is null or e.created_at >= 'epoch'::timestamptz + $13::bigint * interval '1 microsecond')
   and ($14::bigint is null or e.created_at < 'epoch'::timestamptz + $14::bigint * interval '1 microsecond')
 order by n.place
 limit $15
