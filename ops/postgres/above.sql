-- What lies above a cursor, by topic, in at most $3 rows: how many events, how many of them have no delivery row, the highest
-- number, and since when the first of them may be delivered.
select e.topic_name, count(*), count(*) filter (where d.seq is null), max(e.seq),
       (extract(epoch from min(greatest(e.created_at, e.available_at)) filter (where d.seq is null)) * 1000000)::bigint
  from (select seq, topic_name, created_at, available_at
          from $schema.outbox_event
         where seq > $2
         order by seq
         limit $3) e
  -- Above the newest delivery there is none to look for, which saves a look for each row.
  cross join (select max(seq) as seq from $schema.outbox_delivery where destination = $1) newest
  left join lateral (select seq from $schema.outbox_delivery
                      where destination = $1 and seq = e.seq and e.seq <= newest.seq limit 1) d on true
 group by e.topic_name
