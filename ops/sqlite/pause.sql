update $schema.outbox_cursor
   set paused_at = cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000, paused_reason = $2, paused_by = $3
 where destination = $1
