-- The next $4 events that have turned visible in the gaps of a stretch, in the order of a list ($direction).
select e.seq
  from (select unnest(range_agg(numbers)) as numbers              -- of all shards: some numbers lie in the gaps of several
          from $schema.outbox_cursor
         cross join unnest(gaps) as numbers
         where destination = $1) gap
 cross join lateral (select seq
                       from $schema.outbox_event
                      where seq >= greatest(lower(gap.numbers), $2) and seq < least(upper(gap.numbers), $3 + 1)
                      order by seq $direction
                      limit $4) e
 where lower(gap.numbers) <= $3 and upper(gap.numbers) > $2
 order by e.seq $direction
 limit $4
