-- The next $4 rows in the ledger of the destination $1, above $2 and up to $3: those that are not given up and whose event is
-- neither in the log nor in the archive. The last row says how far it looked, and at how many.
with chunk as materialized (
  select seq, status
    from $schema.outbox_delivery
   where destination = $1 and seq > $2 and seq <= $3
   order by seq
   limit $4)
select chunk.seq, chunk.status, 0 as looked
  from chunk
  left join lateral (select seq from $schema.outbox_event where seq = chunk.seq limit 1) e on true
  left join lateral (select seq from $schema.outbox_event_archive where seq = chunk.seq limit 1) a on e.seq is null
 where e.seq is null
   and a.seq is null
   and chunk.status <> 'DISCARDED'
union all
select coalesce(max(seq), 0), '', count(*) from chunk
