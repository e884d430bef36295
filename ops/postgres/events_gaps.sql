-- How far the next 100 gaps of a destination reach, in the order of a list ($direction), and how many there are.
select count(*), coalesce(min(low), 0), coalesce(max(high), 0)
  from (select greatest(lower(numbers), $2) as low, least(upper(numbers) - 1, $3) as high
          from (select unnest(range_agg(numbers)) as numbers
                  from $schema.outbox_cursor
                 cross join unnest(gaps) as numbers
                 where destination = $1) gap
         where lower(numbers) <= $3 and upper(numbers) > $2
         order by lower(numbers) $direction
         limit 100) next
