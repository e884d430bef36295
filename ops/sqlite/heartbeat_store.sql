-- The heartbeat is sent: what the next one goes on from, and when it is due (microseconds since the Unix epoch).
update $schema.outbox_task
   set state = $2, due_at = $3, finished_at = cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000, last_error = null
 where name = $1
