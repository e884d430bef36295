-- The cursors of the destinations that an operator asks about (?1; '' for all). There are no gaps, so ?2 lies in none. What lies
-- above the position up to leased_to may be under way: see outbox_status.
select c.destination, c.topics, c.position,
       case when c.lease_owner is not null
             and c.lease_expires_at > cast((julianday('now') - 2440587.5) * 86400000000 as integer)
            then c.in_flight_to else 0 end as leased_to,
       coalesce(c.lease_owner, ''), c.updated_at, false, ?2 is null and false
  from $schema.outbox_cursor c
 where ?1 = '' or c.destination = ?1
 order by c.destination, c.shard
