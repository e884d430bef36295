-- The database's clock, and when the heartbeat is due; 0: it has not been sent yet.
select (extract(epoch from clock_timestamp()) * 1000000)::bigint,
       coalesce((select (extract(epoch from due_at) * 1000000)::bigint from $schema.outbox_task where name = $1 and state is not null), 0)
