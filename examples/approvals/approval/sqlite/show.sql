-- EXPIRED is what is seen when the clock has crossed expires_at. Nobody writes it, and no event tells of it.
select id, tenant, scope, binding_digest,
       case when state in ('PENDING', 'APPROVED') and expires_at <= cast(unixepoch('subsec') * 1000000 as integer)
            then 'EXPIRED' else state end, threshold, votes, coalesce(request_digest, ''),
       coalesce(superseded_by, ''), version, strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
  from approval
 where id = ?1
