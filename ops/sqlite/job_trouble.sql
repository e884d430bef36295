-- What keeps a running job from going on.
update $schema.outbox_job
   set last_error = ?2, updated_at = cast((julianday('now') - 2440587.5) * 86400000000 as integer)
 where id = ?1 and state = 'RUNNING' and last_error is not ?2
