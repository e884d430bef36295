-- The destinations that have a ledger, also those whose cursor is gone: one look into the index for each.
with recursive ledger (destination) as (
  select min(destination) from $schema.outbox_delivery
  union all
  select (select min(d.destination) from $schema.outbox_delivery d where d.destination > l.destination)
    from ledger l
   where l.destination is not null
)
select destination from ledger where destination is not null limit 10000
