-- The next $4 events above $2 and up to $3: those of the topics $5 (a JSON array of patterns; none: all) that have no row in the
-- ledger of the destination $1. The last row says how far it looked, and at how many.
with chunk as materialized (
  select seq, event_id, topic_name, event_type
    from $schema.outbox_event
   where seq > $2 and seq <= $3
   order by seq
   limit $4)
select chunk.seq, chunk.event_id, chunk.topic_name, chunk.event_type, 0 as looked
  from chunk
  left join $schema.outbox_delivery d on d.destination = $1 and d.seq = chunk.seq
 where d.seq is null
   and ($5 = '[]' or exists (
         select 1 from json_each($5) as pattern
          where chunk.topic_name glob replace(replace(pattern.value, '[', '[[]'), '?', '[?]')))
union all
select coalesce(max(seq), 0), '', '', '', count(*) from chunk
