-- What lies above a cursor, by topic, in at most $3 rows: how many events, how many of them have no delivery row, the highest
-- number, and since when the first of them may be delivered.
select e.topic_name, count(*), count(*) filter (where d.seq is null), max(e.seq),
       min(max(e.created_at, coalesce(e.available_at, 0))) filter (where d.seq is null)
  from (select seq, topic_name, created_at, available_at
          from $schema.outbox_event
         where seq > $2
         order by seq
         limit $3) e
  left join $schema.outbox_delivery d on d.destination = $1 and d.seq = e.seq
 group by e.topic_name
