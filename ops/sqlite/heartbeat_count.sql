-- The next $2 events above the number $1, by topic and type, heartbeats left out; then the highest number, and how many there
-- were. There are no gaps.
with chunk as materialized (
  select seq, topic_name, event_type, coalesce(dedup_key, '') glob 'heartbeat/*' as is_heartbeat
    from $schema.outbox_event
   where seq > $1
   order by seq
   limit $2)
select 'count', topic_name, event_type, count(*), 0 from chunk where not is_heartbeat group by topic_name, event_type
union all
select 'end', '', '', coalesce(max(seq), $1), count(*) from chunk
 where $3 <> ''
