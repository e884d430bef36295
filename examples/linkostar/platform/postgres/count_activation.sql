-- The update locks the device: its activations are numbered, and enter the log, in the order of their commits.
update device_instance set activations = activations + 1
 where device_uuid = $1
returning activations, device_instance_id, supplier, supplier_uuid, tenant_uuid
