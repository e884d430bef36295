update $schema.outbox_task set state = $2 where name = $1
