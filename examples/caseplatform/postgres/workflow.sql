-- The workflow engine's tables, in its own schema, beside its inbox. Running it again does no harm.

create schema if not exists workflow;

-- One row for each event that was handled, in the order of handling. Nothing here is unique: what was handled twice would stand
-- here twice.
create table if not exists workflow.case_history (
  number     bigint generated always as identity primary key,
  case_id    text   not null,
  version    bigint not null,
  event_type text   not null,
  event_id   text   not null
);

-- The projection: what the workflow engine knows of a case.
create table if not exists workflow.case_view (
  case_id    text        primary key,
  tenant_id  text        not null,
  status     text        not null,
  version    bigint      not null,
  updated_at timestamptz not null default clock_timestamp()
);

-- A workflow instance waits for the case of its business key to be accepted.
create table if not exists workflow.instance (
  business_key   text    primary key,
  state          text    not null,
  correlations   integer not null default 0,                  -- how often it was told; more than once is a fault
  correlation_id text
);
