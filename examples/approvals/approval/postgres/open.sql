insert into approval (id, tenant, scope, binding_digest, threshold, expires_at)
values ($1, $2, $3, $4, $5, clock_timestamp() + make_interval(secs => $6))
    on conflict (id) do nothing
returning id, tenant, scope, binding_digest, state, threshold, votes, coalesce(request_digest, ''),
          coalesce(superseded_by, ''), version, to_char(clock_timestamp() at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
