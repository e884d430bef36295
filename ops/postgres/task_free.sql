-- A run that was broken off because its process stops is due at once, for another process.
update $schema.outbox_task
   set owner = null, lease_until = null
 where name = $1 and owner = $2 and lease_epoch = $3
