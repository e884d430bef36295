-- Those of the events $1 (a JSON list of numbers) that are there, locked against being deleted until the end of the
-- transaction. It waits for retention, which holds events while it looks whether they may go: those that stay are the job's. And
-- retention never waits for this lock, nor for one that a job takes after it.
select seq
  from $schema.outbox_event
 where seq = any (array(select value::bigint from json_array_elements_text($1::json)))
 order by seq
   for key share
