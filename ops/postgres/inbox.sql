-- A consumer's inbox: how many events are in it, up to $2, and when the newest among the last $3 of all consumers was handled.
select (select count(*) from (select from $schema.outbox_inbox where consumer = $1 limit $2) i),
       (select (extract(epoch from max(handled_at)) * 1000000)::bigint
          from (select consumer, handled_at from $schema.outbox_inbox order by handled_at desc limit $3) n
         where consumer = $1)
