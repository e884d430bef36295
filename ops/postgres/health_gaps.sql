-- How many ranges of gaps each cursor keeps.
select destination, shard, (select count(*) from unnest(gaps))
  from $schema.outbox_cursor
 order by destination, shard
 limit 1000
