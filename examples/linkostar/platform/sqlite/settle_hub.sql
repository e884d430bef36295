-- ?1: a JSON array of what became of deliveries, by the number of their events.
update hub_instance
   set sync_status = o.status, sync_error = o.code,
       synced_at = case when o.status = 'SYNCED' then cast(unixepoch('subsec') * 1000000 as integer) end
  from (select e.aggregate_id, value ->> 'status' as status, value ->> 'code' as code
          from json_each(?1) join outbox_event e on e.seq = value ->> 'seq'
         where e.aggregate_type = 'hub_instance') o
 where hub_uuid = o.aggregate_id
