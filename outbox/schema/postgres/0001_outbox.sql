-- The log, the cursors and the ledger of Pillarbox. Names are unqualified: run this with search_path set to the schema of
-- your choice. Running it again does no harm, and it never drops anything.

create table if not exists outbox_migration (
  version    integer     primary key,
  applied_at timestamptz not null default clock_timestamp()
);

-- ---- The log ---------------------------------------------------------------------------------------------------

create sequence if not exists outbox_event_seq cache 1;      -- cache 1: numbers are handed out in order; the cursor counts on it

create table if not exists outbox_event (
  -- The case makes the transaction take its xid before it takes a number. The relay's cursor needs that order to
  -- tell a number that was rolled back from one that is not committed yet.
  seq               bigint      primary key default nextval(case when pg_current_xact_id() is not null
                                                                 then 'outbox_event_seq'::regclass end),
  event_id          text        not null unique default gen_random_uuid()::text,
  topic_name        text        not null,
  partition_key     text        not null default '',          -- '' : no order asked for
  aggregate_type    text        not null default '',
  aggregate_id      text        not null default '',
  aggregate_version bigint      not null default 0,
  event_type        text        not null,
  event_version     integer     not null default 1,
  schema_ref        text        not null default '',
  payload           json,                                     -- json, not jsonb: the producer's bytes stay as they are
  payload_bytes     bytea,                                    -- Avro, Protobuf …; neither: a tombstone
  headers           json        not null default '{}',        -- a flat object of strings
  dedup_key         text,
  available_at      timestamptz,                              -- not before; null: at once
  created_at        timestamptz not null default clock_timestamp(),
  constraint outbox_event_one_payload check (payload is null or payload_bytes is null)
);

create unique index if not exists outbox_event_dedup_key on outbox_event (dedup_key) where dedup_key is not null;

-- ---- One cursor per destination and shard ----------------------------------------------------------------------

create table if not exists outbox_cursor (
  destination       text           not null,
  shard             integer        not null default 0,
  position          bigint         not null default 0,        -- everything up to here is settled, parked or a gap
  gaps              int8multirange not null default '{}',     -- numbers below the position that were not visible yet
  in_flight_to      bigint         not null default 0,        -- nothing above it has been handed to the destination
  acquired_position bigint         not null default 0,        -- the position when the lease was last acquired
  topics            text[]         not null default '{}',     -- patterns, * for any run of characters; none: all
  lease_owner       text,
  lease_epoch       bigint         not null default 0,
  lease_expires_at  timestamptz,
  settle_number     bigint         not null default 0,        -- of the last settle of this lease; an older one comes too late
  asleep            boolean        not null default false,    -- a relay waits to be notified
  paused_at         timestamptz,
  paused_reason     text,
  paused_by         text,
  failing_since     timestamptz,
  last_error_code   text,
  crash_count       integer        not null default 0,
  updated_at        timestamptz    not null default clock_timestamp(),
  primary key (destination, shard)
) with (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- ---- The ledger: one row per event and destination, mutable only while the delivery is an exception --------------

create table if not exists outbox_delivery (
  seq                bigint      not null,
  published_at       timestamptz,
  next_attempt_at    timestamptz,                             -- null while open: it waits for its lane or endpoint
  last_attempt_at    timestamptz,
  locked_at          timestamptz,
  attempt_count      integer     not null default 0,
  destination        text        not null,
  status             text        not null,
  receipt            text,
  partition_key      text,                                    -- set exactly while the row stands in its lane's way
  endpoint           text,                                    -- set while not published
  locked_by          text,
  last_error_code    text,
  last_error_message text,
  primary key (destination, seq),
  constraint outbox_delivery_status check
    (status in ('PENDING', 'PUBLISHING', 'PUBLISHED', 'FAILED', 'QUARANTINED', 'DISCARDED'))
);

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
  id          bigint      generated always as identity primary key,
  at          timestamptz not null default clock_timestamp(),
  operator    text        not null,
  action      text        not null,
  destination text,
  seq         bigint,
  event_id    text,
  reason      text        not null default '',
  before      json,
  after       json
);

create table if not exists outbox_endpoint (
  destination   text        not null,
  endpoint      text        not null,                         -- what the event's header or partition key says
  url           text        not null,
  secret_file   text,                                         -- paths, never secrets
  token_file    text,
  max_in_flight integer,
  enabled       boolean     not null default true,
  updated_at    timestamptz not null default clock_timestamp(),
  primary key (destination, endpoint)
);

create table if not exists outbox_event_archive (like outbox_event including constraints);
create table if not exists outbox_delivery_archive (like outbox_delivery including constraints);
