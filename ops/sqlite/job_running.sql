select id from $schema.outbox_job where state = 'RUNNING' order by id limit 1000
