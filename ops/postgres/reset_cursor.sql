-- Sets the cursors before the number $3 and gives the lease back. Gaps below it stay: what is not visible there may still commit.
update $schema.outbox_cursor
   set position = $3::bigint - 1, in_flight_to = $3::bigint - 1, acquired_position = $3::bigint - 1,
       gaps = gaps * int8multirange(int8range(0, $3::bigint)),
       crash_count = 0, failing_since = null, last_error_code = null,
       lease_owner = null, lease_expires_at = null,
       paused_at = case when $4 then paused_at end, paused_reason = case when $4 then $5::text end,
       paused_by = case when $4 then $6::text end, updated_at = clock_timestamp()
 where destination = $1 and lease_owner = $2
