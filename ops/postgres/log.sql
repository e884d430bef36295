-- Lines of the operators' log whose numbers lie in $1 to $2, in the order of a list ($direction), at most $6; of the operator
-- $3, the action $4, the destination $5, where '' asks for nothing.
select id, (extract(epoch from at) * 1000000)::bigint, operator, action, coalesce(destination, ''), coalesce(seq, 0),
       coalesce(event_id, ''), reason, before::text, after::text
  from $schema.outbox_operator_action
 where id >= $1 and id <= $2
   and ($3::text = '' or operator = $3::text)
   and ($4::text = '' or action = $4::text)
   and ($5::text = '' or destination = $5::text)
 order by id $direction
 limit $6
