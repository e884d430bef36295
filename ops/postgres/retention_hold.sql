-- Those of the events $1 (a JSON list of numbers) that nobody repairs or replays at this moment, locked until the end of the
-- transaction. Nothing waits here.
select seq
  from $schema.outbox_event
 where seq = any (array(select value::bigint from json_array_elements_text($1::json)))
 order by seq
   for update skip locked
