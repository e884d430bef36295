-- Gives the deliveries $2 (a JSON list of numbers) up. One that stands in its lane becomes due, so that the relay's next claim
-- clears it away and the lane goes on.
update $schema.outbox_delivery
   set status = 'DISCARDED', next_attempt_at = case when partition_key is not null then now() end,
       locked_by = null, locked_at = null
 where destination = $1
   and seq = any (array(select value::bigint from json_array_elements_text($2::json)))
