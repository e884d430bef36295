-- How often events came again to a consumer that had handled them. Run it with search_path set as for 0001. Running it again does
-- no harm.
--
-- A table of its own, not a column of outbox_inbox: an event that comes once costs what it did, a record stays as it was written,
-- and SQLite has no way to add a column that may be there already.

create table if not exists outbox_inbox_duplicate (
  consumer text        not null,
  event_id text        not null,
  times    bigint      not null,                              -- that it came again
  last_at  timestamptz not null default clock_timestamp(),
  primary key (consumer, event_id)
);

create index if not exists outbox_inbox_duplicate_last_at on outbox_inbox_duplicate (last_at);      -- for retention

-- Who may use the inbox may count as well. The function below is used by services that run already, with the rights that they
-- were given before there was this table.
do $outbox$
declare
  may record;
begin
  for may in
    select case a.grantee when 0 then 'public' else a.grantee::regrole::text end as role,
           string_agg(a.privilege_type, ', ') as what
      from pg_catalog.pg_class c
     cross join aclexplode(coalesce(c.relacl, acldefault('r', c.relowner))) a
     where c.oid = 'outbox_inbox'::regclass
     group by a.grantee
  loop
    execute format('grant %s on outbox_inbox_duplicate to %s', may.what, may.role);
  end loop;
end
$outbox$;

-- The function of 0003, which counts now. p_events is a JSON array of [event id, SHA-256 in hex]; an id that stands there more
-- than once came again within the batch, and is told FIRST once. Verdicts: FIRST, DUPLICATE, DIFFERENT (seen before, with another
-- body), or one row without an id, IN_FLIGHT, and then nothing was recorded or counted.
--
-- Locks are taken in the same order by all: the records in the order of the ids, then the counts in the order of the ids. So two
-- batches do not wait for each other. A count is locked until the transaction ends, and the same duplicate in another transaction
-- waits for that, no longer than p_wait_ms.
create or replace function outbox_inbox_first(p_consumer text, p_events text, p_wait_ms integer)
  returns table (id text, verdict text)
  language plpgsql volatile set search_path from current as $outbox$
declare
  timeout_before text := current_setting('lock_timeout');
  fresh          text[];
  known          text[];
  verdicts       text[];
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
    if cardinality(fresh) < json_array_length(p_events::json) then
      -- One that is gone by now was pruned: it had been handled.
      with seen as (
        select g.event_id, f.event_id is not null as added,
               case when i.body_hash <> g.body_hash then 'DIFFERENT' else 'DUPLICATE' end as said
          from (select given ->> 0 as event_id, decode(given ->> 1, 'hex') as body_hash
                  from json_array_elements(p_events::json) given) g
          left join unnest(fresh) f(event_id) on f.event_id = g.event_id
          left join outbox_inbox i on i.consumer = p_consumer and i.event_id = g.event_id),
      counted as (
        insert into outbox_inbox_duplicate as d (consumer, event_id, times)
        select p_consumer, s.event_id, count(*) - s.added::integer
          from seen s
         where s.said = 'DUPLICATE'
         group by s.event_id, s.added
        having count(*) > s.added::integer
         order by s.event_id
            on conflict (consumer, event_id) do update set times = d.times + excluded.times, last_at = excluded.last_at)
      select array_agg(s.event_id), array_agg(s.said) into known, verdicts from seen s where not s.added;
    end if;
    perform set_config('lock_timeout', timeout_before, true);
  exception when lock_not_available or deadlock_detected then
    return query select ''::text, 'IN_FLIGHT'::text;
    return;
  end;
  return query select unnest(fresh), 'FIRST'::text;
  return query select unnest(known), unnest(verdicts);
end
$outbox$;
