-- EXPIRED is what is seen when the clock has crossed expires_at. Nobody writes it, and no event tells of it.
select id, tenant, scope, binding_digest,
       case when state in ('PENDING', 'APPROVED') and expires_at <= clock_timestamp()
            then 'EXPIRED' else state end, threshold, votes, coalesce(request_digest, ''),
       coalesce(superseded_by, ''), version, to_char(clock_timestamp() at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
  from approval
 where id = $1
