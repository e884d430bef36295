insert into device_instance (device_uuid, device_version_uuid, supplier, supplier_uuid, tenant_uuid, first_seen_hub_uuid, hub_uuid,
       mac_address, source)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9)
returning device_instance_id
