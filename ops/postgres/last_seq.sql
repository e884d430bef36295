-- The last number of the log.
select coalesce((select seq from $schema.outbox_event order by seq desc limit 1), 0)
