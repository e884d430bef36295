-- The next deliveries that have failed or are quarantined: of the destination $1, above the number $2 up to $3, at most $4 whether
-- they fit the filter (from $5 on) or not. The last column: the event is gone from the log.
select d.seq, coalesce(e.topic_name, ''), d.status,
       coalesce(($5::text = '' or e.partition_key = $5) and ($6::text = '' or e.aggregate_type = $6)
       and ($7::text = '' or e.aggregate_id = $7) and ($8::text = '' or e.event_type = $8)
       and ($9::text = '' or d.last_error_code = $9) and ($10::text = '' or d.endpoint = $10)
       and ($11::bigint is null or e.created_at >= timestamptz 'epoch' + $11 * interval '1 microsecond')
       and ($12::bigint is null or e.created_at < timestamptz 'epoch' + $12 * interval '1 microsecond'), false),
       e.seq is null
  from (select *
          from ((select seq, status, last_error_code, endpoint
                   from $schema.outbox_delivery
                  where destination = $1 and status = 'FAILED' and seq > $2 and seq <= $3
                  order by seq limit $4)
                union all
                (select seq, status, last_error_code, endpoint
                   from $schema.outbox_delivery
                  where destination = $1 and status = 'QUARANTINED' and seq > $2 and seq <= $3
                  order by seq limit $4)) o
         order by seq limit $4) d
  left join lateral (select seq, topic_name, partition_key, aggregate_type, aggregate_id, event_type, created_at
                       from $schema.outbox_event where seq = d.seq limit 1) e on true
 order by d.seq
