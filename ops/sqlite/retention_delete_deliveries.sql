-- Deletes the rows of the events ?1 (a JSON list of numbers) in the ledgers ?2 (a JSON list).
delete from $schema.outbox_delivery
 where destination in (select value from json_each(?2))
   and seq in (select value from json_each(?1))
