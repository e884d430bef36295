-- A consumer's inbox: how many events are in it, up to $2, when the newest among the last $3 of all consumers was handled, how
-- many events came again, up to $2, and how often.
select (select count(*) from (select from $schema.outbox_inbox where consumer = $1 limit $2) i),
       (select (extract(epoch from max(handled_at)) * 1000000)::bigint
          from (select consumer, handled_at from $schema.outbox_inbox order by handled_at desc limit $3) n
         where consumer = $1),
       count(*), coalesce(sum(d.times), 0)::bigint
  from (select times from $schema.outbox_inbox_duplicate where consumer = $1 limit $2) d
