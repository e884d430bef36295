update approval
   set state = 'SUPERSEDED', superseded_by = $2, version = version + 1
 where id = $1 and state = 'APPROVED' and expires_at > clock_timestamp()
   and exists (select 1 from approval successor where successor.id = $2 and successor.id <> $1)
returning id, tenant, scope, binding_digest, state, threshold, votes, coalesce(request_digest, ''),
          coalesce(superseded_by, ''), version, to_char(clock_timestamp() at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
