-- Those of the events $1 (a JSON list of numbers) that every destination is done with: each has passed them, none has them in a
-- gap, none of the ledgers has an unsettled row, no replay wants them. The ledgers are $2 (a JSON list), and those of all cursors:
-- one may have begun after the list was made. It is a statement of its own after the one that locks the events: a replay takes that
-- lock before it touches a row, so nothing here can change before the commit.
with listed as materialized (
  select value::bigint as seq from json_array_elements_text($1::json)
), passed as materialized (
  select destination, position, gaps from $schema.outbox_cursor order by destination, shard
), unsettled as materialized (                                -- one stretch of each ledger, instead of a look for each event
  select d.seq
    from $schema.outbox_delivery d
   where d.destination = any (array(select json_array_elements_text($2::json) union select destination from passed))
     and d.seq between (select min(seq) from listed) and (select max(seq) from listed)
     and (d.status not in ('PUBLISHED', 'DISCARDED') or d.next_attempt_at is not null)
)
select l.seq
  from listed l
 where not exists (select from passed c where l.seq > c.position or c.gaps @> l.seq)
   and not exists (select from $schema.outbox_job j
                    where j.state in ('RUNNING', 'PAUSED') and j.kind = 'replay' and l.seq > j.position and l.seq <= j.to_seq)
   and l.seq not in (select seq from unsettled)
 order by l.seq
