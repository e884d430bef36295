update $schema.outbox_cursor
   set paused_at = null, paused_reason = null, paused_by = null
 where destination = $1
