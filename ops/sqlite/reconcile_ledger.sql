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
  left join $schema.outbox_event e on e.seq = chunk.seq
 where e.seq is null
   and chunk.status <> 'DISCARDED'
   and not exists (select 1 from $schema.outbox_event_archive a where a.seq = chunk.seq)
union all
select coalesce(max(seq), 0), '', count(*) from chunk
