-- The next $4 rows in the ledger of the destination $1, above $2 and up to $3, with the id of the event ('' when it has left the
-- log) and how long ago they were published, in microseconds.
select chunk.seq, chunk.status, coalesce(e.event_id, ''), coalesce(e.topic_name, ''), coalesce(e.event_type, ''),
       coalesce(cast((julianday('now') - 2440587.5) * 86400000000 as integer) - chunk.published_at, 0)
  from (select seq, status, published_at
          from $schema.outbox_delivery
         where destination = $1 and seq > $2 and seq <= $3
         order by seq
         limit $4) chunk
  left join $schema.outbox_event e on e.seq = chunk.seq
 order by chunk.seq
