-- The last number that the log has handed out.
select case when is_called then last_value else 0 end from $schema.outbox_event_seq
