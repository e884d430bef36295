-- Rows that say something else than the ledger. There is never one, whoever was killed when: one transaction writes both.
select uuid, sync_status, coalesce(d.status, 'no delivery')
  from (select 'supplier-registration' as destination, hub_uuid as uuid, sync_status from hub_instance
        union all
        select 'supplier-registration', device_uuid, sync_status from device_instance
        union all
        select 'activation', activation_uuid, sync_status from device_activation_event) own
  join outbox_event e on e.event_id = own.uuid
  left join outbox_delivery d on d.destination = own.destination and d.seq = e.seq
 where (own.sync_status in ('SYNCED', 'SENT')) <> coalesce(d.status = 'PUBLISHED', false)
    or own.sync_status not in ('DEAD', 'REJECTED_BALANCE') and coalesce(d.status = 'QUARANTINED', false)
 limit 100
