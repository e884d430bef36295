-- The consumer's side: what was handled, which version of an aggregate was applied, and the first response to a command.

create table if not exists outbox_inbox (
  consumer   text        not null,
  event_id   text        not null,
  body_hash  bytea       not null,                            -- SHA-256
  handled_at timestamptz not null default clock_timestamp(),
  primary key (consumer, event_id)
);

create index if not exists outbox_inbox_handled_at on outbox_inbox (handled_at);        -- for retention

create table if not exists outbox_inbox_version (
  consumer       text        not null,
  aggregate_type text        not null,
  aggregate_id   text        not null,
  version        bigint      not null,
  updated_at     timestamptz not null default clock_timestamp(),
  primary key (consumer, aggregate_type, aggregate_id)
) with (fillfactor = 70);

create table if not exists outbox_idempotency (
  operation   text        not null,                           -- what was asked for, and by whom
  key         text        not null,
  fingerprint bytea       not null,                           -- SHA-256 of the request
  status      integer,                                        -- null: claimed, in a transaction that is still open
  headers     json        not null default '{}',              -- name → array of values
  body        bytea,
  created_at  timestamptz not null default clock_timestamp(),
  expires_at  timestamptz not null,
  primary key (operation, key)
);

create index if not exists outbox_idempotency_expires_at on outbox_idempotency (expires_at);

-- ---- One round trip each ---------------------------------------------------------------------------------------
--
-- A unique key makes the second of two transactions wait for the end of the first, as long as that takes. These functions bound
-- the wait with lock_timeout, for themselves alone. What runs into it, or into a deadlock, is undone up to the inner begin, so
-- the caller's transaction is as good as before, and is told IN_FLIGHT. Each statement has a snapshot of its own (READ
-- COMMITTED): after the wait, the select sees what the other transaction has committed. Any language may call them.

-- outbox_inbox_first records events as handled. p_events is a JSON array of [event id, SHA-256 in hex], the ids all different.
-- Verdicts: FIRST, DUPLICATE, DIFFERENT (seen before, with another body), or one row without an id, IN_FLIGHT, and then nothing
-- was recorded. In the order of the ids, so that two batches do not wait for each other.
create or replace function outbox_inbox_first(p_consumer text, p_events text, p_wait_ms integer)
  returns table (id text, verdict text)
  language plpgsql volatile set search_path from current as $outbox$
declare
  timeout_before text := current_setting('lock_timeout');
  fresh          text[];
begin
  begin
    perform set_config('lock_timeout', p_wait_ms || 'ms', true);
    with added as (
      insert into outbox_inbox (consumer, event_id, body_hash)
      select p_consumer, given ->> 0, decode(given ->> 1, 'hex') from json_array_elements(p_events::json) given
       order by given ->> 0
          on conflict do nothing
      returning event_id)
    select coalesce(array_agg(event_id), '{}') into fresh from added;
    perform set_config('lock_timeout', timeout_before, true);
  exception when lock_not_available or deadlock_detected then
    return query select ''::text, 'IN_FLIGHT'::text;
    return;
  end;
  return query select unnest(fresh), 'FIRST'::text;
  if cardinality(fresh) < json_array_length(p_events::json) then
    -- One that is gone by now was pruned: it had been handled.
    return query
      select given ->> 0,
             case when i.body_hash <> decode(given ->> 1, 'hex') then 'DIFFERENT' else 'DUPLICATE' end
        from json_array_elements(p_events::json) given
        left join outbox_inbox i on i.consumer = p_consumer and i.event_id = given ->> 0
       where given ->> 0 <> all (fresh);
  end if;
end
$outbox$;

-- outbox_inbox_guard moves an aggregate to p_version when that is the next one. Verdicts: APPLY, STALE, GAP, IN_FLIGHT.
-- With p_jump it moves to any later version.
create or replace function outbox_inbox_guard(p_consumer text, p_type text, p_id text, p_version bigint, p_jump boolean,
                                              p_wait_ms integer)
  returns text
  language plpgsql volatile set search_path from current as $outbox$
declare
  timeout_before text := current_setting('lock_timeout');
  known          bigint;
begin
  perform set_config('lock_timeout', p_wait_ms || 'ms', true);
  -- The row is there, or the first version makes it: then it is locked, and what it says holds until the end.
  if p_version = 1 or p_jump then
    insert into outbox_inbox_version (consumer, aggregate_type, aggregate_id, version) values (p_consumer, p_type, p_id, 0)
        on conflict do nothing;
  end if;
  select version into known from outbox_inbox_version
   where consumer = p_consumer and aggregate_type = p_type and aggregate_id = p_id
     for update;
  if p_version > coalesce(known, 0) and (p_jump or p_version = coalesce(known, 0) + 1) then
    update outbox_inbox_version set version = p_version, updated_at = clock_timestamp()
     where consumer = p_consumer and aggregate_type = p_type and aggregate_id = p_id;
  end if;
  perform set_config('lock_timeout', timeout_before, true);
  return case when p_version <= coalesce(known, 0) then 'STALE'
              when p_jump or p_version = coalesce(known, 0) + 1 then 'APPLY'
              else 'GAP' end;
exception when lock_not_available or deadlock_detected then
  return 'IN_FLIGHT';
end
$outbox$;

-- outbox_idempotency_claim claims a key, or returns the response that is stored. p_fingerprint is SHA-256 in hex. Verdicts:
-- FIRST, REPLAY, DIFFERENT (the key was used for another request), IN_FLIGHT. A key that has expired is as good as new; so is one
-- that was committed without a response, because nobody works on it any more.
create or replace function outbox_idempotency_claim(p_operation text, p_key text, p_fingerprint text, p_keep_ms bigint,
                                                    p_wait_ms integer)
  returns table (verdict text, first_status integer, first_headers text, first_body bytea)
  language plpgsql volatile set search_path from current as $outbox$
declare
  timeout_before text := current_setting('lock_timeout');
  fresh          boolean;
begin
  begin
    perform set_config('lock_timeout', p_wait_ms || 'ms', true);
    insert into outbox_idempotency as known (operation, key, fingerprint, expires_at)
    values (p_operation, p_key, decode(p_fingerprint, 'hex'), clock_timestamp() + p_keep_ms * interval '1 millisecond')
        on conflict (operation, key) do update
       set fingerprint = excluded.fingerprint, status = null, headers = '{}', body = null, created_at = clock_timestamp(),
           expires_at = excluded.expires_at
     where known.expires_at <= clock_timestamp() or known.status is null;
    fresh := found;
    perform set_config('lock_timeout', timeout_before, true);
  exception when lock_not_available or deadlock_detected then
    return query select 'IN_FLIGHT'::text, null::integer, null::text, null::bytea;
    return;
  end;
  if fresh then
    return query select 'FIRST'::text, null::integer, null::text, null::bytea;
    return;
  end if;
  return query
    select case when fingerprint = decode(p_fingerprint, 'hex') then 'REPLAY' else 'DIFFERENT' end, status, headers::text, body
      from outbox_idempotency where operation = p_operation and key = p_key;
end
$outbox$;
