-- How far each destination has come, over its shards, and how far each replay that is not at its end yet: nothing above the lowest
-- of them is touched. With the database's clock, in microseconds since the Unix epoch.
select destination, min(position), true, cast((julianday('now') - 2440587.5) * 86400000000 as integer)
  from $schema.outbox_cursor
 group by destination
union all
select 'job ' || id, position, false, cast((julianday('now') - 2440587.5) * 86400000000 as integer)
  from $schema.outbox_job
 where state in ('RUNNING', 'PAUSED') and kind = 'replay'
