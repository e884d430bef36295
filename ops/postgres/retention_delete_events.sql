-- Deletes the events $1 (a JSON list of numbers).
delete from $schema.outbox_event
 where seq = any (array(select value::bigint from json_array_elements_text($1::json)))
