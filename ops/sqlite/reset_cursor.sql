-- Sets the cursors before the number $3 and gives the lease back.
update $schema.outbox_cursor
   set position = $3 - 1, in_flight_to = $3 - 1, acquired_position = $3 - 1,
       crash_count = 0, failing_since = null, last_error_code = null,
       lease_owner = null, lease_expires_at = null,
       paused_at = case when $4 then paused_at end, paused_reason = case when $4 then $5 end,
       paused_by = case when $4 then $6 end, updated_at = cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000
 where destination = $1 and lease_owner = $2
