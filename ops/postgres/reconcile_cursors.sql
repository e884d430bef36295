-- Where each destination stands, with the first number in its ledger. Gaps are pairs of numbers, both included.
select c.destination, c.position, to_json(c.topics)::text,
       (select coalesce(json_agg(json_build_array(lower(gap), upper(gap) - 1)), '[]')::text from unnest(c.gaps) gap),
       coalesce((select seq from $schema.outbox_delivery where destination = c.destination order by seq limit 1), 0)
  from $schema.outbox_cursor c
 order by c.destination, c.shard
 limit 10000
