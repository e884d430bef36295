-- The next $2 events above the number $1, on one snapshot:
--
--   count    by topic and type, heartbeats left out
--   gap      numbers between them that are not visible: the first and the last one
--   late     events that have turned visible in the gaps $3 (a JSON array of pairs) of earlier looks; their numbers
--   end      the highest number, and how many there were
--   horizon  every transaction below the first has ended; the second is this one's own
with chunk as materialized (
  select seq, topic_name, event_type, coalesce(dedup_key, '') like 'heartbeat/%' as is_heartbeat
    from $schema.outbox_event
   where seq > $1
   order by seq
   limit $2),
gaps as (
  select before + 1 as first, seq - 1 as last
    from (select seq, lag(seq, 1, $1::bigint) over (order by seq) as before from chunk) numbered
   where seq > before + 1
   order by seq
   limit 1001)
select 'count', topic_name, event_type, count(*), 0::bigint from chunk where not is_heartbeat group by topic_name, event_type
union all
select 'gap', '', '', first, last from gaps
union all
select 'late', case when is_heartbeat then '' else topic_name end, event_type, seq, 0
  from (select e.*
          from json_array_elements($3::text::json) as gap
         cross join lateral (select seq, topic_name, event_type, coalesce(dedup_key, '') like 'heartbeat/%' as is_heartbeat
                               from $schema.outbox_event
                              where seq between (gap ->> 0)::bigint and (gap ->> 1)::bigint
                              order by seq
                              limit $2) e
         limit $2) late
union all
select 'end', '', '', coalesce(max(seq), $1), count(*) from chunk
union all
select 'horizon', '', '', pg_snapshot_xmin(pg_current_snapshot())::text::bigint, pg_current_xact_id()::text::bigint
