-- What operators start and what runs by itself, in SQLite: see the tables for PostgreSQL, whose columns these are. Running it again
-- does no harm.

create table if not exists outbox_job (
  id              integer primary key autoincrement,
  kind            text    not null,
  destination     text    not null,
  filter          text    not null,                           -- JSON: which deliveries
  rate_per_second integer not null,
  max_events      integer not null default 0,                 -- 0: no limit
  state           text    not null default 'RUNNING',
  created_by      text    not null,
  reason          text    not null default '',
  from_seq        integer not null,                           -- the first number to look at
  to_seq          integer not null,                           -- the last: what is written later is not part of it
  position        integer not null,                           -- everything up to here was looked at
  affected        integer not null default 0,                 -- deliveries that were set going or discarded
  skipped         integer not null default 0,                 -- that matched and had changed, or were under way
  last_error      text,
  version         integer not null default 1,                 -- rises with every change of the state
  created_at      integer not null default (cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000),
  updated_at      integer not null default (cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000),
  finished_at     integer,
  paced_at        integer not null                            -- up to when what the rate allows has been used
                  default (cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000),
  constraint outbox_job_filter check (json_valid(filter)),
  constraint outbox_job_kind check (kind in ('retry', 'discard', 'replay')),
  constraint outbox_job_state check (state in ('RUNNING', 'PAUSED', 'DONE', 'CANCELLED', 'FAILED'))
) strict;

-- What is worked on, and what holds retention back.
create index if not exists outbox_job_active on outbox_job (id) where state in ('RUNNING', 'PAUSED');

-- A lease for each thing that one process at a time does: running the jobs, retention, a heartbeat, a reconciliation.
create table if not exists outbox_task (
  name            text    primary key,
  owner           text,
  lease_epoch     integer not null default 0,
  lease_until     integer,
  due_at          integer not null default (cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000),
  started_at      integer,
  finished_at     integer,
  last_error      text,                                       -- of the last run; null: it went well
  state           text                                        -- JSON: what the next run goes on from, or the last one's report
) strict;

-- What was done to one event, newest first, and by whom.
create index if not exists outbox_operator_action_seq on outbox_operator_action (seq, id) where seq is not null;

-- Whether an event that has left the log is in the archive.
create index if not exists outbox_event_archive_seq on outbox_event_archive (seq);

-- What is known of an event that has left the log.
create index if not exists outbox_event_archive_event_id on outbox_event_archive (event_id);
create index if not exists outbox_delivery_archive_seq on outbox_delivery_archive (seq);
