-- Those of the events ?1 (a JSON list of numbers) that are there. The transaction has the write lock already.
select seq
  from $schema.outbox_event
 where seq in (select value from json_each(?1))
 order by seq
