-- Our tables and about how many rows they have: the log by its first and last number, the others counted up to $1. How many
-- bytes each takes only a walk through the whole file would tell.
select 'outbox_cursor', (select count(*) from (select 1 from $schema.outbox_cursor limit $1))
union all
select 'outbox_delivery', (select count(*) from (select 1 from $schema.outbox_delivery limit $1))
union all
select 'outbox_event', coalesce((select max(seq) from $schema.outbox_event) - (select min(seq) from $schema.outbox_event) + 1, 0)
union all
select 'outbox_event_archive', (select count(*) from (select 1 from $schema.outbox_event_archive limit $1))
union all
select 'outbox_inbox', (select count(*) from (select 1 from $schema.outbox_inbox limit $1))
union all
select 'outbox_operator_action', (select count(*) from (select 1 from $schema.outbox_operator_action limit $1))
