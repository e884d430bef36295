update $schema.outbox_task set last_error = $2 where name = $1
