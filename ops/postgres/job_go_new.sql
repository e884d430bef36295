-- The same for events that have no row in the ledger. Returns those that got one.
insert into $schema.outbox_delivery (destination, seq, status, next_attempt_at, partition_key, endpoint)
select $1, e.seq, 'PENDING', now(), nullif(e.partition_key, ''), ''
  from $schema.outbox_event e
 where e.seq = any (array(select value::bigint from json_array_elements_text($2::json)))
 order by e.seq
on conflict do nothing
returning seq
