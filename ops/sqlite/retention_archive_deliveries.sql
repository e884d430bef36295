-- Copies the rows of the events ?1 (a JSON list of numbers) in the ledgers ?2 (a JSON list), and in those of all cursors, to the
-- archive.
insert into $schema.outbox_delivery_archive
      (seq, published_at, next_attempt_at, last_attempt_at, locked_at, attempt_count, destination, status, receipt,
       partition_key, endpoint, locked_by, last_error_code, last_error_message)
select seq, published_at, next_attempt_at, last_attempt_at, locked_at, attempt_count, destination, status, receipt,
       partition_key, endpoint, locked_by, last_error_code, last_error_message
  from $schema.outbox_delivery
 where destination in (select value from json_each(?2) union all select destination from $schema.outbox_cursor)
   and seq in (select value from json_each(?1))
