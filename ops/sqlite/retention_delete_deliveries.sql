-- Deletes the rows of the events ?1 (a JSON list of numbers) in the ledgers ?2 (a JSON list), and in those of all cursors: one may
-- have begun after the list was made.
delete from $schema.outbox_delivery
 where destination in (select value from json_each(?2) union all select destination from $schema.outbox_cursor)
   and seq in (select value from json_each(?1))
