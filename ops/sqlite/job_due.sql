-- How many deliveries are due and not taken up yet; counted up to ?2.
select count(*)
  from (select 1 from $schema.outbox_delivery
         where destination = ?1 and next_attempt_at is not null
           and next_attempt_at <= cast((julianday('now') - 2440587.5) * 86400000000 as integer)
         order by next_attempt_at
         limit ?2)
