update $schema.outbox_event
   set payload = ?2, payload_bytes = ?3, headers = ?4
 where seq = ?1
