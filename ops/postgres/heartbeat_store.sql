-- The heartbeat is sent: what the next one goes on from, and when it is due (microseconds since the Unix epoch).
update $schema.outbox_task
   set state = $2, due_at = to_timestamp(0) + $3 * interval '1 microsecond', finished_at = clock_timestamp(), last_error = null
 where name = $1
