-- The topics of a destination.
select to_json(topics)::text from $schema.outbox_cursor where destination = $1 and shard = 0
