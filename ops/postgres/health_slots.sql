-- Replication slots that hold rows back for a consumer that is not there, and how many transactions old what they hold back is.
select slot_name, age(xmin)::bigint
  from pg_replication_slots
 where xmin is not null and not active
 order by 2 desc
 limit 10
