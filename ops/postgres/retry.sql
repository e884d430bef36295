-- Sets a delivery going again, from its first attempt, in its lane. The relay finds it by next_attempt_at.
update $schema.outbox_delivery d
   set status = 'PENDING', attempt_count = 0, next_attempt_at = clock_timestamp(),
       partition_key = nullif(e.partition_key, ''), endpoint = coalesce(d.endpoint, ''), locked_by = null, locked_at = null,
       last_error_code = null, last_error_message = null
  from $schema.outbox_event e
 where d.destination = $1 and d.seq = $2 and e.seq = d.seq
