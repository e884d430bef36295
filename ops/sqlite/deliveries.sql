-- What the numbers ?2 (a JSON array) are to the destination ?1: the event, its row in the ledger, and the last thing that an
-- operator did to the event. With ?3 = 'row' only what has a row, with 'none' only what has none. Then what a filter asks for,
-- where '', '[]' and null ask for nothing: ?4 statuses, ?5 topics (patterns), ?6 topics of the destination, ?7 partition_key,
-- ?8 aggregate_type, ?9 aggregate_id, ?10 event_type, ?11 last_error_code, ?12 endpoint, ?13 and ?14 created_at in microseconds;
-- at most ?15 rows, in the order of the numbers given.
with topic as materialized (
  select replace(replace(p.value, '[', '[[]'), '?', '[?]') as pattern from json_each(?5) p
), wanted as materialized (
  select replace(replace(p.value, '[', '[[]'), '?', '[?]') as pattern from json_each(?6) p
)
select n.value, coalesce(e.event_id, ''), coalesce(e.topic_name, ''), coalesce(e.partition_key, ''),
       coalesce(e.aggregate_type, ''), coalesce(e.aggregate_id, ''), coalesce(e.aggregate_version, 0),
       coalesce(e.event_type, ''), coalesce(e.event_version, 0), coalesce(e.schema_ref, ''),
       e.created_at, e.available_at,
       coalesce(d.status, ''), coalesce(d.attempt_count, 0), d.next_attempt_at, d.last_attempt_at, d.published_at,
       coalesce(d.locked_by, ''), d.locked_at,
       coalesce(d.endpoint, ''), coalesce(d.receipt, ''), coalesce(d.last_error_code, ''), coalesce(d.last_error_message, ''),
       coalesce((select a.id from $schema.outbox_operator_action a where a.seq = n.value order by a.id desc limit 1), 0)
  from json_each(?2) n
  left join $schema.outbox_delivery d on d.destination = ?1 and d.seq = n.value
  left join $schema.outbox_event e on e.seq = n.value
 where (?3 = '' or (d.status is not null) = (?3 = 'row'))
   and (d.status is not null or e.event_id is not null)
   and (?4 = '[]' or d.status in (select value from json_each(?4)))
   and (?5 = '[]' or exists (select 1 from topic where e.topic_name glob topic.pattern))
   and (?6 = '[]' or exists (select 1 from wanted where e.topic_name glob wanted.pattern))
   and (?7 = '' or e.partition_key = ?7)
   and (?8 = '' or e.aggregate_type = ?8)
   and (?9 = '' or e.aggregate_id = ?9)
   and (?10 = '' or e.event_type = ?10)
   and (?11 = '' or d.last_error_code = ?11)
   and (?12 = '' or d.endpoint = ?12)
   and (?13 is null or e.created_at >= ?13)
   and (?14 is null or e.created_at < ?14)
 order by n.key
 limit ?15
