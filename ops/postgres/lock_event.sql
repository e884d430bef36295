-- The event, locked until the end of the transaction, always before its deliveries: what two operators do to it at two
-- destinations comes one after the other.
select seq from $schema.outbox_event where seq = $1 for no key update
