-- The newest $2 rows of a destination's ledger: how often each was tried, and how long after it could have been delivered it was
-- published, in microseconds.
select d.status, d.attempt_count,
       (extract(epoch from d.published_at) * 1000000)::bigint,
       (extract(epoch from d.published_at - greatest(e.created_at, e.available_at)) * 1000000)::bigint
  from (select seq, status, attempt_count, published_at
          from $schema.outbox_delivery
         where destination = $1
         order by seq desc
         limit $2) d
  left join lateral (select created_at, available_at from $schema.outbox_event where seq = d.seq limit 1) e on true
