update $schema.outbox_cursor
   set lease_expires_at = cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000 + 60000000
 where destination = $1 and lease_owner = $2
