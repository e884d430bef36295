insert into hub_instance (hub_uuid, supplier, supplier_uuid, tenant_uuid, bundle_uuid, hub_identifier, hub_type, metadata)
values ($1, $2, $3, $4, $5, $6, $7, $8)
