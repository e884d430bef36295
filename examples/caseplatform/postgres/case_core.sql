-- The service's own tables. The outbox lives beside them, in the schema integration. Running it again does no harm.

create schema if not exists case_core;

create table if not exists case_core.case_file (
  case_id      text        primary key,
  tenant_id    text        not null,
  subject      text        not null default '',
  status       text        not null,
  version      bigint      not null,                          -- rises by one with every change, each of which has its event
  submitted_at timestamptz not null default clock_timestamp(),
  accepted_at  timestamptz,
  accepted_by  text,
  constraint case_file_status check (status in ('SUBMITTED', 'ACCEPTED'))
);

-- For the reconciliation: which cases were accepted lately?
create index if not exists case_file_accepted_at on case_core.case_file (accepted_at) where status = 'ACCEPTED';

create table if not exists case_core.case_audit_log (
  case_id        text        not null references case_core.case_file,
  version        bigint      not null,
  action         text        not null,
  actor          text        not null,
  correlation_id text        not null,
  at             timestamptz not null default clock_timestamp(),
  primary key (case_id, version)
);
