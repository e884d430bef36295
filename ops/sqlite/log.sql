-- Lines of the operators' log whose numbers lie in ?1 to ?2, in the order of a list ($direction), at most ?6; of the operator
-- ?3, the action ?4, the destination ?5, where '' asks for nothing.
select id, at, operator, action, coalesce(destination, ''), coalesce(seq, 0),
       coalesce(event_id, ''), reason, before, after
  from $schema.outbox_operator_action
 where id >= ?1 and id <= ?2
   and (?3 = '' or operator = ?3)
   and (?4 = '' or action = ?4)
   and (?5 = '' or destination = ?5)
 order by id $direction
 limit ?6
