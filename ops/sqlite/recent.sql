-- The newest $2 rows of a destination's ledger: how often each was tried, and how long after it could have been delivered it was
-- published, in microseconds.
select d.status, d.attempt_count, d.published_at,
       d.published_at - max(e.created_at, coalesce(e.available_at, 0))
  from (select seq, status, attempt_count, published_at
          from $schema.outbox_delivery
         where destination = $1
         order by seq desc
         limit $2) d
  left join $schema.outbox_event e on e.seq = d.seq
