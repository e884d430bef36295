insert into $schema.outbox_task (name) values ($1) on conflict do nothing
