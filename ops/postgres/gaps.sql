-- The same for what has turned visible in the gaps below the cursor: late commits that the relay has not read yet.
select e.topic_name, count(*), count(*) filter (where d.seq is null), max(e.seq),
       (extract(epoch from min(greatest(e.created_at, e.available_at)) filter (where d.seq is null)) * 1000000)::bigint
  from (select e.seq, e.topic_name, e.created_at, e.available_at
          from (select unnest(range_agg(numbers)) as numbers
                  from $schema.outbox_cursor
                 cross join unnest(gaps) as numbers
                 where destination = $1
                 limit 1000) gap
          cross join lateral (select seq, topic_name, created_at, available_at
                                from $schema.outbox_event
                               where seq >= lower(gap.numbers) and seq < upper(gap.numbers) and seq <= $2
                               order by seq
                               limit $3) e
         limit $3) e
  left join lateral (select seq from $schema.outbox_delivery where destination = $1 and seq = e.seq limit 1) d on true
 group by e.topic_name
