-- Deletes the rows of the events $1 (a JSON list of numbers) in the ledgers $2 (a JSON list), and in those of all cursors: one may
-- have begun after the list was made.
delete from $schema.outbox_delivery
 where destination = any (array(select json_array_elements_text($2::json) union select destination from $schema.outbox_cursor))
   and seq = any (array(select value::bigint from json_array_elements_text($1::json)))
