update $schema.outbox_event
   set payload = $2::text::json, payload_bytes = $3, headers = $4::text::json
 where seq = $1
