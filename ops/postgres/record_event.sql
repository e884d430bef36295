insert into $schema.outbox_operator_action (operator, action, destination, seq, event_id, reason, before, after)
values ($1, $2, $3, $4, $5, $6, $7, $8)
