update $schema.outbox_cursor
   set paused_at = clock_timestamp(), paused_reason = $2, paused_by = $3
 where destination = $1
