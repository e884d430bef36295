update $schema.outbox_cursor set lease_expires_at = clock_timestamp() + interval '1 minute' where destination = $1 and lease_owner = $2
