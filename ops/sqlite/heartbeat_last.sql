-- The last number that the log has handed out.
select coalesce((select seq from sqlite_sequence where name = 'outbox_event'), 0)
