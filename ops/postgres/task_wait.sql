-- How many microseconds it is until a task may be claimed; less than 0: it may be now.
--
-- $1 name, $2 interval in microseconds
select (extract(epoch from greatest(least(due_at, finished_at + $2::bigint * interval '1 microsecond'),
                                    case when owner is not null then lease_until end) - clock_timestamp()) * 1000000)::bigint
  from $schema.outbox_task
 where name = $1
