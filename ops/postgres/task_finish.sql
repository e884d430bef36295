-- $4 interval in microseconds, $5 the error, null when there is none
update $schema.outbox_task
   set owner = null, lease_until = null, finished_at = clock_timestamp(), last_error = $5,
       due_at = clock_timestamp() + $4::bigint * interval '1 microsecond'
 where name = $1 and owner = $2 and lease_epoch = $3
