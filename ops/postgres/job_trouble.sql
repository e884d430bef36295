-- What keeps a running job from going on.
update $schema.outbox_job
   set last_error = $2, updated_at = clock_timestamp()
 where id = $1 and state = 'RUNNING' and last_error is distinct from $2
