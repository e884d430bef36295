-- The same for events that have no row in the ledger. Returns those that got one.
insert into $schema.outbox_delivery (destination, seq, status, next_attempt_at, partition_key, endpoint)
select ?1, e.seq, 'PENDING', cast((julianday('now') - 2440587.5) * 86400000000 as integer), nullif(e.partition_key, ''), ''
  from $schema.outbox_event e
 where e.seq in (select value from json_each(?2))
 order by e.seq
on conflict do nothing
returning seq
