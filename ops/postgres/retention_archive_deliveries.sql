-- Copies the rows of the events $1 (a JSON list of numbers) in the ledgers $2 (a JSON list), and in those of all cursors, to the
-- archive.
insert into $schema.outbox_delivery_archive
      (seq, published_at, next_attempt_at, last_attempt_at, locked_at, attempt_count, destination, status, receipt,
       partition_key, endpoint, locked_by, last_error_code, last_error_message)
select seq, published_at, next_attempt_at, last_attempt_at, locked_at, attempt_count, destination, status, receipt,
       partition_key, endpoint, locked_by, last_error_code, last_error_message
  from $schema.outbox_delivery
 where destination = any (array(select json_array_elements_text($2::json) union select destination from $schema.outbox_cursor))
   and seq = any (array(select value::bigint from json_array_elements_text($1::json)))
