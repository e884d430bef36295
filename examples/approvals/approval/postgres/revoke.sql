update approval
   set state = 'REVOKED', version = version + 1
 where id = $1 and state = 'APPROVED' and expires_at > clock_timestamp()
returning id, tenant, scope, binding_digest, state, threshold, votes, coalesce(request_digest, ''),
          coalesce(superseded_by, ''), version, to_char(clock_timestamp() at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
