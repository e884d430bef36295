-- The delivery, locked until the end of the transaction. What it says is read by the next statement: that one's snapshot is taken
-- after the wait for the lock.
select seq from $schema.outbox_delivery where destination = $1 and seq = $2 for no key update
