-- The destinations that have a ledger, also those whose cursor is gone: one look into the index for each.
with recursive ledger (destination) as (
  (select destination from $schema.outbox_delivery order by destination limit 1)
  union all
  select (select d.destination from $schema.outbox_delivery d where d.destination > l.destination order by d.destination limit 1)
    from ledger l
   where l.destination is not null
)
select destination from ledger where destination is not null limit 10000
