-- The next ?4 deliveries that have a row, whatever their status, in the order of a list ($direction).
select seq
  from $schema.outbox_delivery
 where destination = ?1 and seq >= ?2 and seq <= ?3
 order by seq $direction
 limit ?4
