-- How far each destination has come, over its shards, and how far each replay that is not at its end yet: nothing above the lowest
-- of them is touched. With the database's clock, in microseconds since the Unix epoch.
select destination, min(position), true, (extract(epoch from clock_timestamp()) * 1000000)::bigint
  from $schema.outbox_cursor
 group by destination
union all
select 'job ' || id, position, false, (extract(epoch from clock_timestamp()) * 1000000)::bigint
  from $schema.outbox_job
 where state in ('RUNNING', 'PAUSED') and kind = 'replay'
