insert into approval_change (approval_id, version, class, event_id, actor) values ($1, $2, $3, $4, $5)
