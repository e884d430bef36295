-- $1: a JSON array of what became of deliveries, by the number of their events.
update device_activation_event
   set sync_status = o.status, sync_error = o.code, sent_at = case when o.status = 'SENT' then now() end
  from json_to_recordset($1::json) as o (seq bigint, status text, code text)
  join outbox_event e on e.seq = o.seq
 where e.aggregate_type = 'device_activation_event' and activation_uuid = e.aggregate_id::uuid
