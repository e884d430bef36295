-- How often events came again to a consumer that had handled them, in SQLite: see the table for PostgreSQL, whose columns these
-- are. Running it again does no harm.

create table if not exists outbox_inbox_duplicate (
  consumer text    not null,
  event_id text    not null,
  times    integer not null,                                  -- that it came again
  last_at  integer not null default (cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000),
  primary key (consumer, event_id)
) strict, without rowid;

create index if not exists outbox_inbox_duplicate_last_at on outbox_inbox_duplicate (last_at);      -- for retention
