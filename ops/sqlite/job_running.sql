-- The second condition is what lets SQLite use the index over what is active.
select id from $schema.outbox_job where state = 'RUNNING' and state in ('RUNNING', 'PAUSED') order by id limit 1000
