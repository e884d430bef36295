-- Records what a job is about to do to the deliveries $2 (a JSON list of numbers). $3 who, $4 what, $5 why, $6 the status to come.
-- $7: they had no row before, and have one already.
insert into $schema.outbox_operator_action (operator, action, destination, seq, event_id, reason, before, after)
select $3, $4, $1, l.seq, e.event_id, $5,
       case when not $7::boolean then
         json_build_object('status', d.status, 'attempt_count', d.attempt_count,
                           'last_error_code', d.last_error_code, 'last_error_message', d.last_error_message) end,
       json_build_object('status', $6::text)
  from (select value::bigint as seq from json_array_elements_text($2::json)) l
  left join lateral (select * from $schema.outbox_delivery where destination = $1 and seq = l.seq limit 1) d on true
  left join lateral (select event_id from $schema.outbox_event where seq = l.seq limit 1) e on true
 order by l.seq
