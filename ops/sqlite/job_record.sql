-- Records what a job is about to do to the deliveries ?2 (a JSON list of numbers). ?3 who, ?4 what, ?5 why, ?6 the status to come.
-- ?7: they had no row before, and have one already.
insert into $schema.outbox_operator_action (operator, action, destination, seq, event_id, reason, before, after)
select ?3, ?4, ?1, l.value, e.event_id, ?5,
       case when not ?7 then
         json_object('status', d.status, 'attempt_count', d.attempt_count,
                           'last_error_code', d.last_error_code, 'last_error_message', d.last_error_message) end,
       json_object('status', ?6)
  from json_each(?2) l
  left join $schema.outbox_delivery d on d.destination = ?1 and d.seq = l.value
  left join $schema.outbox_event e on e.seq = l.value
