insert into device_activation_event (activation_uuid, device_uuid, activation_number) values (?1, ?2, ?3)
