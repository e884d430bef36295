-- Those of the deliveries $2 (a JSON list of numbers) that still have one of the statuses $3 (a JSON list) and, unless they
-- are empty, the error code $4 and the endpoint $5; locked until the end of the transaction. What the relay or an operator
-- works on at this moment is left out: nothing waits here, so nothing can be waited for in a circle.
select seq
  from $schema.outbox_delivery
 where destination = $1
   and seq = any (array(select value::bigint from json_array_elements_text($2::json)))
   and status = any (array(select json_array_elements_text($3::json)))
   and ($4::text = '' or last_error_code = $4) and ($5::text = '' or endpoint = $5)
 order by seq
   for update skip locked
