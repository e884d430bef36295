-- $4 interval in microseconds, $5 the error, null when there is none
update $schema.outbox_task
   set owner = null, lease_until = null, last_error = $5,
       finished_at = cast((julianday('now') - 2440587.5) * 86400000000 as integer),
       due_at = cast((julianday('now') - 2440587.5) * 86400000000 as integer) + $4
 where name = $1 and owner = $2 and lease_epoch = $3
