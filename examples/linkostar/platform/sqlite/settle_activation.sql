-- ?1: a JSON array of what became of deliveries, by the number of their events.
update device_activation_event
   set sync_status = o.status, sync_error = o.code,
       sent_at = case when o.status = 'SENT' then cast(unixepoch('subsec') * 1000000 as integer) end
  from (select e.aggregate_id, value ->> 'status' as status, value ->> 'code' as code
          from json_each(?1) join outbox_event e on e.seq = value ->> 'seq'
         where e.aggregate_type = 'device_activation_event') o
 where activation_uuid = o.aggregate_id
