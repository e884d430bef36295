-- Deletes the events ?1 (a JSON list of numbers).
delete from $schema.outbox_event
 where seq in (select value from json_each(?1))
