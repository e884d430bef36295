-- The next deliveries that have failed or are quarantined: of the destination ?1, above the number ?2 up to ?3, at most ?4 whether
-- they fit the filter (from ?5 on) or not. The last column: the event is gone from the log.
-- The second condition on the status is what lets SQLite use the index, and its name what makes it: it would rather go through the
-- whole destination.
select looked.seq, coalesce(e.topic_name, ''), looked.status,
       coalesce((?5 = '' or e.partition_key = ?5) and (?6 = '' or e.aggregate_type = ?6)
       and (?7 = '' or e.aggregate_id = ?7) and (?8 = '' or e.event_type = ?8)
       and (?9 = '' or looked.last_error_code = ?9) and (?10 = '' or looked.endpoint = ?10)
       and (?11 is null or e.created_at >= ?11) and (?12 is null or e.created_at < ?12), false),
       e.seq is null
  from (select *
          from (select * from (select seq, status, last_error_code, endpoint
                   from $schema.outbox_delivery indexed by outbox_delivery_open
                  where destination = ?1 and status = 'FAILED' and status not in ('PUBLISHED', 'DISCARDED')
                    and seq > ?2 and seq <= ?3
                  order by seq limit ?4)
                union all
                select * from (select seq, status, last_error_code, endpoint
                   from $schema.outbox_delivery indexed by outbox_delivery_open
                  where destination = ?1 and status = 'QUARANTINED' and status not in ('PUBLISHED', 'DISCARDED')
                    and seq > ?2 and seq <= ?3
                  order by seq limit ?4))
         order by seq limit ?4) looked
  left join $schema.outbox_event e on e.seq = looked.seq
 order by looked.seq
