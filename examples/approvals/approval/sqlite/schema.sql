-- Approvals, beside the outbox's tables: the same tables and columns as in PostgreSQL. Running it again does no harm.
--
-- Columns that end in _at are integer microseconds since the Unix epoch, UTC; in the view they are ISO 8601 text.

create table if not exists approval (
  id             text    primary key,
  tenant         text    not null,
  scope          text    not null,
  binding_digest text    not null,                            -- of what is approved: nothing else may be done with it
  threshold      integer not null,                            -- how many have to agree
  votes          integer not null default 0,
  state          text    not null default 'PENDING',          -- EXPIRED is not written: see show.sql
  request_digest text,                                        -- of the request that used it
  superseded_by  text    references approval (id),
  version        integer not null default 0,                  -- counts its events
  opened_at      integer not null default (cast(unixepoch('subsec') * 1000000 as integer)),
  expires_at     integer not null,
  constraint approval_state check (state in ('PENDING', 'APPROVED', 'CONSUMED', 'SUPERSEDED', 'REVOKED')),
  constraint approval_threshold check (threshold > 0),
  constraint approval_used check ((state = 'CONSUMED') = (request_digest is not null)),
  constraint approval_superseded check ((state = 'SUPERSEDED') = (superseded_by is not null))
) strict;

create table if not exists approval_vote (
  approval_id text not null references approval (id),
  approver    text not null,
  primary key (approval_id, approver)
) strict, without rowid;

-- What was done to an approval: the service's own history, which knows nothing of the outbox.
create table if not exists approval_change (
  approval_id text    not null references approval (id),
  version     integer not null,
  class       text    not null,                               -- issuance, use, supersession, revocation
  event_id    text    not null,
  actor       text    not null,
  changed_at  integer not null default (cast(unixepoch('subsec') * 1000000 as integer)),
  primary key (approval_id, version)
) strict, without rowid;

-- Each event for the audit store, and whether it is there. Oldest first: order by created_at.
create view if not exists approval_outbox as
select e.event_id,
       e.payload ->> '$.details.class' as class,
       nullif(e.aggregate_id, '') as approval_id,             -- null: a heartbeat
       e.payload,
       strftime('%Y-%m-%dT%H:%M:%S', e.created_at / 1000000, 'unixepoch')
         || printf('.%06dZ', e.created_at % 1000000) as created_at,
       strftime('%Y-%m-%dT%H:%M:%S', d.published_at / 1000000, 'unixepoch')
         || printf('.%06dZ', d.published_at % 1000000) as drained_at,
       coalesce(d.attempt_count, 0) as attempts,
       strftime('%Y-%m-%dT%H:%M:%S', coalesce(d.last_attempt_at, d.published_at) / 1000000, 'unixepoch')
         || printf('.%06dZ', coalesce(d.last_attempt_at, d.published_at) % 1000000) as last_attempt_at,
       d.last_error_code as last_error
  from outbox_event e
  left join outbox_delivery d on d.destination = 'audit-core' and d.seq = e.seq
 where e.topic_name = 'approval.audit';
