-- The next $3 events of a stretch of the log, in the order of a list ($direction).
select seq
  from $schema.outbox_event
 where seq >= $1 and seq <= $2
 order by seq $direction
 limit $3
