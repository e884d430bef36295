-- $1: a JSON array of what became of deliveries, by the number of their events.
update hub_instance
   set sync_status = o.status, sync_error = o.code, synced_at = case when o.status = 'SYNCED' then now() end
  from json_to_recordset($1::json) as o (seq bigint, status text, code text)
  join outbox_event e on e.seq = o.seq
 where e.aggregate_type = 'hub_instance' and hub_uuid = e.aggregate_id::uuid
