-- The open deliveries of a destination: up to $2 of each status; since when the oldest of the first $3 may be delivered; and
-- the rate of what was published in the last 10 seconds, among the newest $4 rows: over the time that those took when they are not
-- enough for 10 seconds. The second condition on the status is
-- what lets SQLite use the index over what is open.
select (select count(*) from (select 1 from $schema.outbox_delivery
         where destination = $1 and status = 'PENDING' and status not in ('PUBLISHED', 'DISCARDED') order by seq limit $2)),
       (select count(*) from (select 1 from $schema.outbox_delivery
         where destination = $1 and status = 'PUBLISHING' and status not in ('PUBLISHED', 'DISCARDED') order by seq limit $2)),
       (select count(*) from (select 1 from $schema.outbox_delivery
         where destination = $1 and status = 'FAILED' and status not in ('PUBLISHED', 'DISCARDED') order by seq limit $2)),
       (select count(*) from (select 1 from $schema.outbox_delivery
         where destination = $1 and status = 'QUARANTINED' and status not in ('PUBLISHED', 'DISCARDED') order by seq limit $2)),
       (select min(max(e.created_at, coalesce(e.available_at, 0)))
          from (select * from (select seq from $schema.outbox_delivery
                  where destination = $1 and status = 'PENDING' and status not in ('PUBLISHED', 'DISCARDED')
                  order by seq limit $3)
                union all
                select * from (select seq from $schema.outbox_delivery
                  where destination = $1 and status = 'PUBLISHING' and status not in ('PUBLISHED', 'DISCARDED')
                  order by seq limit $3)
                union all
                select * from (select seq from $schema.outbox_delivery
                  where destination = $1 and status = 'FAILED' and status not in ('PUBLISHED', 'DISCARDED')
                  order by seq limit $3)) o
          join $schema.outbox_event e on e.seq = o.seq),
       (select coalesce(count(*) / max((now - min(published_at)) / 1e6, iif(count(*) < $4, 1.0, 0.001)), 0.0)
          from (select published_at, cast((julianday('now') - 2440587.5) * 86400000000 as integer) as now
                  from $schema.outbox_delivery
                 where destination = $1 order by seq desc limit $4)
         where published_at > now - 10000000)
