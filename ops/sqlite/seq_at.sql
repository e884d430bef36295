-- The first event from a number on, and when it was created, in microseconds since the Unix epoch.
select seq, created_at
  from $schema.outbox_event
 where seq >= ?1
 order by seq
 limit 1
