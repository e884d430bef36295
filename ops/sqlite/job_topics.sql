-- The topics of a destination.
select topics from $schema.outbox_cursor where destination = ?1 and shard = 0
