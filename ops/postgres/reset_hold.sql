-- Keeps relays away for a minute, and, should the reset be broken off, until it is done.
update $schema.outbox_cursor
   set lease_owner = $2, lease_epoch = lease_epoch + 1, lease_expires_at = clock_timestamp() + interval '1 minute',
       paused_at = coalesce(paused_at, clock_timestamp()), paused_reason = $3, paused_by = $4
 where destination = $1
