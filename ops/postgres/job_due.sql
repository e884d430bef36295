-- How many deliveries are due and not taken up yet; counted up to $2.
select count(*)
  from (select from $schema.outbox_delivery
         where destination = $1 and next_attempt_at <= clock_timestamp()
         order by next_attempt_at
         limit $2) d
