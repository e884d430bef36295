-- The open deliveries of a destination: up to $2 of each status; since when the oldest of the first $3 may be delivered; and
-- the rate of what was published in the last 10 seconds, among the newest $4 rows: over the time that those took when they are not
-- enough for 10 seconds.
select (select count(*) from (select from $schema.outbox_delivery
         where destination = $1 and status = 'PENDING' order by seq limit $2) p),
       (select count(*) from (select from $schema.outbox_delivery
         where destination = $1 and status = 'PUBLISHING' order by seq limit $2) p),
       (select count(*) from (select from $schema.outbox_delivery
         where destination = $1 and status = 'FAILED' order by seq limit $2) f),
       (select count(*) from (select from $schema.outbox_delivery
         where destination = $1 and status = 'QUARANTINED' order by seq limit $2) q),
       (select (extract(epoch from min(greatest(e.created_at, e.available_at))) * 1000000)::bigint
          from ((select seq from $schema.outbox_delivery
                  where destination = $1 and status = 'PENDING' order by seq limit $3)
                union all
                (select seq from $schema.outbox_delivery
                  where destination = $1 and status = 'PUBLISHING' order by seq limit $3)
                union all
                (select seq from $schema.outbox_delivery
                  where destination = $1 and status = 'FAILED' order by seq limit $3)) o
          cross join lateral (select created_at, available_at from $schema.outbox_event where seq = o.seq limit 1) e),
       (select coalesce(count(*) / greatest(extract(epoch from clock_timestamp() - min(published_at)),
                                            case when count(*) < $4 then 1 else 0.001 end), 0)::float8
          from (select published_at from $schema.outbox_delivery
                 where destination = $1 order by seq desc limit $4) n
         where published_at > clock_timestamp() - interval '10 seconds')
