-- Keeps relays away for a minute, and, should the reset be broken off, until it is done.
update $schema.outbox_cursor
   set lease_owner = $2, lease_epoch = lease_epoch + 1,
       lease_expires_at = cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000 + 60000000,
       paused_at = coalesce(paused_at, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000),
       paused_reason = $3, paused_by = $4
 where destination = $1
