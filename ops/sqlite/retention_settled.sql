-- Those of the events ?1 (a JSON list of numbers) that every destination is done with: each has passed them, none of the ledgers
-- has an unsettled row, no replay wants them. The ledgers are ?2 (a JSON list), and those of all cursors: one may have begun after
-- the list was made. The transaction has the write lock, so nothing changes before the commit.
with ledger as materialized (
  select value as destination from json_each(?2) union all select destination from $schema.outbox_cursor
)
select l.value
  from json_each(?1) l
 where not exists (select 1 from $schema.outbox_cursor passed where l.value > passed.position)
   and not exists (select 1 from $schema.outbox_job j
                    where j.state in ('RUNNING', 'PAUSED') and j.kind = 'replay' and l.value > j.position and l.value <= j.to_seq)
   and not exists (select 1 from ledger cross join $schema.outbox_delivery d
                       on d.destination = ledger.destination and d.seq = l.value
                    where d.status not in ('PUBLISHED', 'DISCARDED') or d.next_attempt_at is not null)
