update $schema.outbox_task
   set lease_until = cast((julianday('now') - 2440587.5) * 86400000000 as integer) + $4
 where name = $1 and owner = $2 and lease_epoch = $3
