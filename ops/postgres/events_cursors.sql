-- The cursors of the destinations that an operator asks about ($1; '' for all), of all their shards, and whether the number $2 lies
-- in one of their gaps. What lies above the position up to leased_to may be under way: see outbox_status.
select c.destination, to_json(c.topics)::text, c.position,
       case when c.lease_owner is not null and c.lease_expires_at > now() then c.in_flight_to else 0 end as leased_to,
       coalesce(c.lease_owner, ''), (extract(epoch from c.updated_at) * 1000000)::bigint,
       not isempty(c.gaps), c.gaps @> $2::bigint
  from $schema.outbox_cursor c
 where $1::text = '' or c.destination = $1::text
 order by c.destination, c.shard
