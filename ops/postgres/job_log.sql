-- The next events of the log and their deliveries to the destination $1: above the number $2 up to $3, at most $4 whether they fit
-- the filter (from $5 on) or not. The last column: the relay has not come to it yet.
--
-- No lock on the cursor is needed: its position only grows and the gaps below it only shrink, so what is settled in this
-- snapshot stays so for the relay, which never looks at it in the log again.
select e.seq, e.topic_name, coalesce(d.status, ''),
       coalesce(($5::text = '' or e.partition_key = $5) and ($6::text = '' or e.aggregate_type = $6)
       and ($7::text = '' or e.aggregate_id = $7) and ($8::text = '' or e.event_type = $8)
       and ($9::text = '' or d.last_error_code = $9) and ($10::text = '' or d.endpoint = $10)
       and ($11::bigint is null or e.created_at >= timestamptz 'epoch' + $11 * interval '1 microsecond')
       and ($12::bigint is null or e.created_at < timestamptz 'epoch' + $12 * interval '1 microsecond'), false),
       e.seq > c.position or c.gaps @> e.seq
  from (select seq, topic_name, partition_key, aggregate_type, aggregate_id, event_type, created_at
          from $schema.outbox_event
         where seq > $2 and seq <= $3
         order by seq limit $4) e
  join $schema.outbox_cursor c on c.destination = $1 and c.shard = $schema.outbox_shard(e.partition_key, e.seq, c.shards)
  left join lateral (select status, last_error_code, endpoint
                       from $schema.outbox_delivery where destination = $1 and seq = e.seq limit 1) d on true
 order by e.seq
