-- The row's lock, taken by the update, makes the votes of one approval come one after the other: exactly one meets the threshold.
update approval
   set votes = votes + 1,
       state = case when votes + 1 >= threshold then 'APPROVED' else state end,
       version = version + case when votes + 1 >= threshold then 1 else 0 end
 where id = $1 and state = 'PENDING' and expires_at > clock_timestamp()
returning id, tenant, scope, binding_digest, state, threshold, votes, coalesce(request_digest, ''),
          coalesce(superseded_by, ''), version, to_char(clock_timestamp() at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
