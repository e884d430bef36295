-- Gives the deliveries ?2 (a JSON list of numbers) up. One that stands in its lane becomes due, so that the relay's next claim
-- clears it away and the lane goes on.
update $schema.outbox_delivery
   set status = 'DISCARDED',
       next_attempt_at = case when partition_key is not null
                              then cast((julianday('now') - 2440587.5) * 86400000000 as integer) end,
       locked_by = null, locked_at = null
 where destination = ?1 and seq in (select value from json_each(?2))
