-- Takes away the shards that the destination $1 no longer has.
delete from $schema.outbox_cursor where destination = $1 and shard >= $2::integer
