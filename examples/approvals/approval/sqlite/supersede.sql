update approval
   set state = 'SUPERSEDED', superseded_by = ?2, version = version + 1
 where id = ?1 and state = 'APPROVED' and expires_at > cast(unixepoch('subsec') * 1000000 as integer)
   and exists (select 1 from approval successor where successor.id = ?2 and successor.id <> ?1)
returning id, tenant, scope, binding_digest, state, threshold, votes, coalesce(request_digest, ''),
          coalesce(superseded_by, ''), version, strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
