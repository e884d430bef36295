update $schema.outbox_task
   set lease_until = clock_timestamp() + $4::bigint * interval '1 microsecond'
 where name = $1 and owner = $2 and lease_epoch = $3
