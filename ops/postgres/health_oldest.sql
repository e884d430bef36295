-- What holds vacuum back the longest, of the whole cluster: an open transaction or a prepared one. Who it is, its age in
-- microseconds, and what would end it. A session of another user is seen by members of pg_read_all_stats alone.
select what, age, remedy
  from (select 'a transaction of ' || coalesce(nullif(application_name, ''), usename, backend_type) || ' (process ' || pid || ', '
                 || coalesce(state, 'state unknown') || ')' as what,
               (extract(epoch from clock_timestamp() - xact_start) * 1000000)::bigint as age,
               format('end it there, or with select pg_terminate_backend(%s)', pid) as remedy
          from pg_stat_activity
         where xact_start is not null and pid <> pg_backend_pid()
           and backend_type not in ('autovacuum worker', 'walsender', 'parallel worker')
        union all
        select 'the prepared transaction ' || quote_literal(gid) || ' in database ' || database,
               (extract(epoch from clock_timestamp() - prepared) * 1000000)::bigint,
               format('end it with commit prepared %1$L or rollback prepared %1$L', gid)
          from pg_prepared_xacts) open
 order by age desc
 limit 1
