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
  left join lateral (select seq from $schema.outbox_delivery where destination = $1 and seq = chunk.seq limit 1) d on true
 where d.seq is null
   and ($5 = '[]' or exists (
         select from json_array_elements_text($5::text::json) as pattern
          where chunk.topic_name like
                replace(replace(replace(replace(pattern, '\', '\\'), '%', '\%'), '_', '\_'), '*', '%')))
union all
select coalesce(max(seq), 0), '', '', '', count(*) from chunk
