-- Compare and set: the first request gets it. One that comes second finds the state changed, when the first has committed.
update approval
   set state = 'CONSUMED', request_digest = ?2, version = version + 1
 where id = ?1 and state = 'APPROVED' and expires_at > cast(unixepoch('subsec') * 1000000 as integer)
returning id, tenant, scope, binding_digest, state, threshold, votes, coalesce(request_digest, ''),
          coalesce(superseded_by, ''), version, strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
