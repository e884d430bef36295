-- The highest number of the log that can be seen.
select coalesce(max(seq), 0) from $schema.outbox_event
