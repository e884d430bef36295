-- The same for the event ?7.
select id, at, operator, action, coalesce(destination, ''), coalesce(seq, 0),
       coalesce(event_id, ''), reason, before, after
  from $schema.outbox_operator_action
 where seq = ?7 and id >= ?1 and id <= ?2
   and (?3 = '' or operator = ?3)
   and (?4 = '' or action = ?4)
   and (?5 = '' or destination = ?5)
 order by seq $direction, id $direction
 limit ?6
