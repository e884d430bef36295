-- The consumer's side: what was handled, which version of an aggregate was applied, and the first response to a command. The
-- same tables and columns as in PostgreSQL; hashes are SHA-256 in lower-case hex.

create table if not exists outbox_inbox (
  consumer   text    not null,
  event_id   text    not null,
  body_hash  text    not null,
  handled_at integer not null default (cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000),
  primary key (consumer, event_id)
) strict, without rowid;

create index if not exists outbox_inbox_handled_at on outbox_inbox (handled_at);        -- for retention

create table if not exists outbox_inbox_version (
  consumer       text    not null,
  aggregate_type text    not null,
  aggregate_id   text    not null,
  version        integer not null,
  updated_at     integer not null default (cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000),
  primary key (consumer, aggregate_type, aggregate_id)
) strict, without rowid;

create table if not exists outbox_idempotency (
  operation   text    not null,                               -- what was asked for, and by whom
  key         text    not null,
  fingerprint text    not null,                               -- of the request
  status      integer,                                        -- null: claimed, in a transaction that is still open
  headers     text    not null default '{}',                  -- JSON: name → array of values
  body        blob,
  created_at  integer not null default (cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000),
  expires_at  integer not null,
  primary key (operation, key),
  constraint outbox_idempotency_headers check (json_valid(headers))
) strict;

create index if not exists outbox_idempotency_expires_at on outbox_idempotency (expires_at);
