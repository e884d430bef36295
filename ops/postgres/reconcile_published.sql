-- The next $4 rows in the ledger of the destination $1, above $2 and up to $3, with the id of the event ('' when it has left the
-- log) and how long ago they were published, in microseconds.
select chunk.seq, chunk.status, coalesce(e.event_id, ''), coalesce(e.topic_name, ''), coalesce(e.event_type, ''),
       coalesce((extract(epoch from clock_timestamp() - chunk.published_at) * 1000000)::bigint, 0)
  from (select seq, status, published_at
          from $schema.outbox_delivery
         where destination = $1 and seq > $2 and seq <= $3
         order by seq
         limit $4) chunk
  left join lateral (select event_id, topic_name, event_type from $schema.outbox_event where seq = chunk.seq limit 1) e on true
 order by chunk.seq
