-- The next ?5 open deliveries of one status, in the order of a list ($direction). The second condition on the status lets SQLite
-- use the index over what is open.
select seq
  from $schema.outbox_delivery
 where destination = ?1 and status = ?2 and status not in ('PUBLISHED', 'DISCARDED') and seq >= ?3 and seq <= ?4
 order by seq $direction
 limit ?5
