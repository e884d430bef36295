-- The database's clock, and when the heartbeat is due; 0: it has not been sent yet.
select cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000,
       coalesce((select due_at from $schema.outbox_task where name = $1 and state is not null), 0)
