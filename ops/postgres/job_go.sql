-- Sets the deliveries $2 (a JSON list of numbers) going from their first attempt, in their lanes. All get the same time, that of
-- the transaction: the relay takes what is due by time and number.
-- $3: they are replayed. What has left its lane is given to the relay without an endpoint, also when it still has one: else it might
-- overtake what was published before it, which has none any more. What stands in its lane stays there, before those behind it.
update $schema.outbox_delivery d
   set status = 'PENDING', attempt_count = 0, next_attempt_at = now(),
       partition_key = nullif(e.partition_key, ''),
       endpoint = case when $3::boolean and d.partition_key is null then '' else coalesce(d.endpoint, '') end,
       locked_by = null, locked_at = null, published_at = null, receipt = null, last_error_code = null,
       last_error_message = null
  from $schema.outbox_event e
 where d.destination = $1
   and d.seq = any (array(select value::bigint from json_array_elements_text($2::json)))
   and e.seq = d.seq
