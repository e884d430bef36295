-- Those of the events $1 (a JSON list of numbers) that are there, locked against being deleted until the end of the
-- transaction. What retention deletes at this moment is left out: nothing waits here.
select seq
  from $schema.outbox_event
 where seq = any (array(select value::bigint from json_array_elements_text($1::json)))
 order by seq
   for key share skip locked
