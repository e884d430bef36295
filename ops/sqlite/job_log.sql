-- The next events of the log and their deliveries to the destination ?1: above the number ?2 up to ?3, at most ?4 whether they fit
-- the filter (from ?5 on) or not. The last column: the relay has not come to it yet.
select looked.seq, looked.topic_name, coalesce(d.status, ''),
       coalesce((?5 = '' or looked.partition_key = ?5) and (?6 = '' or looked.aggregate_type = ?6)
       and (?7 = '' or looked.aggregate_id = ?7) and (?8 = '' or looked.event_type = ?8)
       and (?9 = '' or d.last_error_code = ?9) and (?10 = '' or d.endpoint = ?10)
       and (?11 is null or looked.created_at >= ?11) and (?12 is null or looked.created_at < ?12), false),
       looked.seq > (select position from $schema.outbox_cursor where destination = ?1 and shard = 0)
  from (select seq, topic_name, partition_key, aggregate_type, aggregate_id, event_type, created_at
          from $schema.outbox_event
         where seq > ?2 and seq <= ?3
         order by seq limit ?4) looked
  left join $schema.outbox_delivery d on d.destination = ?1 and d.seq = looked.seq
 order by looked.seq
