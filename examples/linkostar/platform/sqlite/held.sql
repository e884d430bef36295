-- What the relay's ledger says of every event.
select event_id, status, coalesce(last_error_code, '') from outbox_status
