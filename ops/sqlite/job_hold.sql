-- Those of the deliveries ?2 (a JSON list of numbers) that still have one of the statuses ?3 (a JSON list) and, unless they
-- are empty, the error code ?4 and the endpoint ?5. The transaction has the write lock already.
select seq
  from $schema.outbox_delivery
 where destination = ?1
   and seq in (select value from json_each(?2))
   and status in (select value from json_each(?3))
   and (?4 = '' or last_error_code = ?4) and (?5 = '' or endpoint = ?5)
 order by seq
