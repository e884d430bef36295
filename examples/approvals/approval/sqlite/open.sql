insert into approval (id, tenant, scope, binding_digest, threshold, expires_at)
values (?1, ?2, ?3, ?4, ?5, cast(unixepoch('subsec') * 1000000 as integer) + cast(?6 * 1000000 as integer))
    on conflict (id) do nothing
returning id, tenant, scope, binding_digest, state, threshold, votes, coalesce(request_digest, ''),
          coalesce(superseded_by, ''), version, strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
