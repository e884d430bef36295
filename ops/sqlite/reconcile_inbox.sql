-- Which of the ids $2 (a JSON array) a consumer has handled.
select event_id
  from $schema.outbox_inbox
 where consumer = $1
   and event_id in (select value from json_each($2))
