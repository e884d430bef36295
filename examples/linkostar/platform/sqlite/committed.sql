-- Every event that the platform has committed, by its own tables: the outbox is not asked. Of one key in the order of the commits.
select hub_uuid as event_id, hub_uuid as event_key from hub_instance
union all
select device_uuid, device_uuid from device_instance
union all
select * from (select activation_uuid, device_uuid from device_activation_event order by device_uuid, activation_number) a
