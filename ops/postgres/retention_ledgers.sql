-- The destinations that have a ledger, also those whose cursor is gone: one look into the index for each. It goes from the end to the
-- beginning, since at the beginning of a ledger lies what retention has taken away, and the index keeps that until a vacuum.
with recursive ledger (destination) as (
  (select destination from $schema.outbox_delivery order by destination desc, seq desc limit 1)
  union all
  select (select d.destination
            from $schema.outbox_delivery d
           where d.destination < l.destination
           order by d.destination desc, d.seq desc
           limit 1)
    from ledger l
   where l.destination is not null
)
select destination from ledger where destination is not null limit 10000
