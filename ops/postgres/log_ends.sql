-- The first and the last number of the operators' log.
select coalesce((select id from $schema.outbox_operator_action order by id limit 1), 0),
       coalesce((select id from $schema.outbox_operator_action order by id desc limit 1), 0)
