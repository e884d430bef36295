-- The log, the cursors and the ledger of Pillarbox, in SQLite: the same tables and columns as in PostgreSQL. Running it
-- again does no harm, and it never drops anything.
--
-- Columns that end in _at, and failing_since, are integer microseconds since the Unix epoch, UTC. JSON is text.

create table if not exists outbox_migration (
  version    integer primary key,
  applied_at integer not null default (cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000)
) strict;

-- ---- The log ---------------------------------------------------------------------------------------------------

-- Writers are serialised, so autoincrement order is commit order, and a number is never used twice.
create table if not exists outbox_event (
  seq               integer primary key autoincrement,
  event_id          text    not null unique default (lower(hex(randomblob(4)) || '-' || hex(randomblob(2)) || '-4' ||
                              substr(hex(randomblob(2)), 2) || '-a' || substr(hex(randomblob(2)), 2) || '-' || hex(randomblob(6)))),
  topic_name        text    not null,
  partition_key     text    not null default '',              -- '' : no order asked for
  aggregate_type    text    not null default '',
  aggregate_id      text    not null default '',
  aggregate_version integer not null default 0,
  event_type        text    not null,
  event_version     integer not null default 1,
  schema_ref        text    not null default '',
  payload           text,                                     -- JSON; the producer's bytes stay as they are
  payload_bytes     blob,                                     -- Avro, Protobuf …; neither: a tombstone
  headers           text    not null default '{}',            -- a flat object of strings
  dedup_key         text,
  available_at      integer,                                  -- not before; null: at once
  created_at        integer not null default (cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000),
  constraint outbox_event_one_payload check (payload is null or payload_bytes is null),
  constraint outbox_event_payload check (payload is null or json_valid(payload)),
  constraint outbox_event_headers check (json_valid(headers))
) strict;

create unique index if not exists outbox_event_dedup_key on outbox_event (dedup_key) where dedup_key is not null;

-- ---- One cursor per destination and shard ----------------------------------------------------------------------

create table if not exists outbox_cursor (
  destination       text    not null,
  shard             integer not null default 0,
  position          integer not null default 0,               -- everything up to here is settled or parked
  gaps              text    not null default '[]',            -- there are none: autoincrement order is commit order
  in_flight_to      integer not null default 0,               -- nothing above it has been handed to the destination
  acquired_position integer not null default 0,               -- the position when the lease was last acquired
  topics            text    not null default '[]',            -- JSON array of patterns, * for any run of characters; none: all
  lease_owner       text,
  lease_epoch       integer not null default 0,
  lease_expires_at  integer,
  settle_number     integer not null default 0,               -- of the last settle of this lease; an older one comes too late
  asleep            integer not null default 0,               -- 0 or 1
  paused_at         integer,
  paused_reason     text,
  paused_by         text,
  failing_since     integer,
  last_error_code   text,
  crash_count       integer not null default 0,
  updated_at        integer not null default (cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000),
  primary key (destination, shard),
  constraint outbox_cursor_topics check (json_valid(topics)),
  constraint outbox_cursor_asleep check (asleep in (0, 1))
) strict;

-- ---- The ledger: one row per event and destination, mutable only while the delivery is an exception --------------

create table if not exists outbox_delivery (
  seq                integer not null,
  published_at       integer,
  next_attempt_at    integer,                                 -- null while open: it waits for its lane or endpoint
  last_attempt_at    integer,
  locked_at          integer,
  attempt_count      integer not null default 0,
  destination        text    not null,
  status             text    not null,
  receipt            text,
  partition_key      text,                                    -- set exactly while the row stands in its lane's way
  endpoint           text,                                    -- set while not published
  locked_by          text,
  last_error_code    text,
  last_error_message text,
  primary key (destination, seq),
  constraint outbox_delivery_status check
    (status in ('PENDING', 'PUBLISHING', 'PUBLISHED', 'FAILED', 'QUARANTINED', 'DISCARDED'))
) strict, without rowid;

-- What is due: retries, events that are not yet available, what an operator set going again.
create index if not exists outbox_delivery_due on outbox_delivery (destination, next_attempt_at, seq)
  where next_attempt_at is not null;
-- What waits in a lane.
create index if not exists outbox_delivery_lane on outbox_delivery (destination, endpoint, partition_key, seq)
  where partition_key is not null;
-- What waits for its endpoint or lane alone.
create index if not exists outbox_delivery_parked on outbox_delivery (destination, endpoint, seq)
  where status = 'PENDING' and next_attempt_at is null;
-- What is not settled, by status; it also holds retention back.
create index if not exists outbox_delivery_open on outbox_delivery (destination, status, seq)
  where status not in ('PUBLISHED', 'DISCARDED');

-- ---- Operators, endpoints, archives ----------------------------------------------------------------------------

create table if not exists outbox_operator_action (
  id          integer primary key autoincrement,
  at          integer not null default (cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000),
  operator    text    not null,
  action      text    not null,
  destination text,
  seq         integer,
  event_id    text,
  reason      text    not null default '',
  before      text,                                           -- JSON
  after       text
) strict;

create table if not exists outbox_endpoint (
  destination   text    not null,
  endpoint      text    not null,                             -- what the event's header or partition key says
  url           text    not null,
  secret_file   text,                                         -- paths, never secrets
  token_file    text,
  max_in_flight integer,
  enabled       integer not null default 1,                   -- 0 or 1
  updated_at    integer not null default (cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000),
  primary key (destination, endpoint),
  constraint outbox_endpoint_enabled check (enabled in (0, 1))
) strict;

create table if not exists outbox_event_archive (
  seq               integer not null,
  event_id          text    not null,
  topic_name        text    not null,
  partition_key     text    not null,
  aggregate_type    text    not null,
  aggregate_id      text    not null,
  aggregate_version integer not null,
  event_type        text    not null,
  event_version     integer not null,
  schema_ref        text    not null,
  payload           text,
  payload_bytes     blob,
  headers           text    not null,
  dedup_key         text,
  available_at      integer,
  created_at        integer not null,
  constraint outbox_event_one_payload check (payload is null or payload_bytes is null)
) strict;

create table if not exists outbox_delivery_archive (
  seq                integer not null,
  published_at       integer,
  next_attempt_at    integer,
  last_attempt_at    integer,
  locked_at          integer,
  attempt_count      integer not null,
  destination        text    not null,
  status             text    not null,
  receipt            text,
  partition_key      text,
  endpoint           text,
  locked_by          text,
  last_error_code    text,
  last_error_message text,
  constraint outbox_delivery_status check
    (status in ('PENDING', 'PUBLISHING', 'PUBLISHED', 'FAILED', 'QUARANTINED', 'DISCARDED'))
) strict;
