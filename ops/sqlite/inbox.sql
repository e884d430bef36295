-- A consumer's inbox: how many events are in it, up to $2, when the newest among the last $3 of all consumers was handled, how
-- many events came again, up to $2, and how often.
select (select count(*) from (select 1 from $schema.outbox_inbox where consumer = $1 limit $2)),
       (select max(handled_at)
          from (select consumer, handled_at from $schema.outbox_inbox order by handled_at desc limit $3)
         where consumer = $1),
       count(*), coalesce(sum(times), 0)
  from (select times from $schema.outbox_inbox_duplicate where consumer = $1 limit $2)
