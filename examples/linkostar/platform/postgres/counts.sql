select 'hub_instance', sync_status, count(*) from hub_instance group by sync_status
union all
select 'device_instance', sync_status, count(*) from device_instance group by sync_status
union all
select 'device_activation_event', sync_status, count(*) from device_activation_event group by sync_status
 order by 1, 2
