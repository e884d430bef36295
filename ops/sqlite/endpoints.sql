-- The endpoints of a destination, at most $2.
select endpoint, url, coalesce(max_in_flight, 0), enabled
  from $schema.outbox_endpoint
 where destination = $1
 order by endpoint
 limit $2
