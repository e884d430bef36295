-- The next $3 events above the number $1 up to $2, with their time in microseconds since the Unix epoch.
select seq, topic_name, (extract(epoch from created_at) * 1000000)::bigint
  from $schema.outbox_event
 where seq > $1 and seq <= $2
 order by seq
 limit $3
