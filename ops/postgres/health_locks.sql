-- Sessions that wait for a lock on one of our tables ($1 is the schema), or for a row of one: the first of those holds the
-- tuple's lock and waits for the transaction that has the row.
with ours as materialized (
  select oid from pg_class
   where relnamespace = (select oid from pg_namespace where nspname = $1) and relname like 'outbox\_%'),
locks as materialized (
  select pid, locktype, granted, relation in (select oid from ours) as ours
    from pg_locks
   where database = (select oid from pg_database where datname = current_database()) or not granted)
select count(distinct w.pid)
  from locks w
 where not w.granted
   and (w.ours or w.locktype = 'transactionid' and w.pid in (select pid from locks where granted and ours and locktype = 'tuple'))
