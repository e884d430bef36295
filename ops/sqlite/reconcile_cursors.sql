-- Where each destination stands, with the first number in its ledger. There are no gaps.
select c.destination, c.position, c.topics, c.gaps,
       coalesce((select seq from $schema.outbox_delivery where destination = c.destination order by seq limit 1), 0)
  from $schema.outbox_cursor c
 order by c.destination, c.shard
 limit 10000
