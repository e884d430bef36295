-- Gives a delivery up. When it stands in its lane it becomes due, so that the relay's next claim clears it away and the lane
-- goes on.
update $schema.outbox_delivery
   set status = 'DISCARDED',
       next_attempt_at = case when partition_key is not null
                              then cast((julianday('now') - 2440587.5) * 86400000 as integer) * 1000 end,
       locked_by = null, locked_at = null
 where destination = ?1 and seq = ?2
