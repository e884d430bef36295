-- The same for the event $7.
select id, (extract(epoch from at) * 1000000)::bigint, operator, action, coalesce(destination, ''), coalesce(seq, 0),
       coalesce(event_id, ''), reason, before::text, after::text
  from $schema.outbox_operator_action
 where seq = $7 and id >= $1 and id <= $2
   and ($3::text = '' or operator = $3::text)
   and ($4::text = '' or action = $4::text)
   and ($5::text = '' or destination = $5::text)
 order by seq $direction, id $direction
 limit $6
