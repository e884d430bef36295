-- Our tables: sizes out of the file system, rows out of the statistics, times in microseconds since the Unix epoch. $1 is the schema.
select c.relname,
       greatest(c.reltuples::bigint, coalesce(s.n_live_tup, 0), 0),
       pg_table_size(c.oid), pg_indexes_size(c.oid),
       coalesce(s.n_dead_tup, 0),
       (extract(epoch from greatest(s.last_vacuum, s.last_autovacuum)) * 1000000)::bigint,
       (extract(epoch from greatest(s.last_analyze, s.last_autoanalyze)) * 1000000)::bigint,
       coalesce((select option_value::boolean from pg_options_to_table(c.reloptions)
                  where option_name = 'autovacuum_enabled'), true),
       (select option_value::float8 from pg_options_to_table(c.reloptions)
         where option_name = 'autovacuum_vacuum_scale_factor'),
       array_to_string(array(select i.relname
                               from pg_index x
                               join pg_class i on i.oid = x.indexrelid
                              where x.indrelid = c.oid and not x.indisvalid
                              order by i.relname), ', ')
  from pg_class c
  left join pg_stat_user_tables s on s.relid = c.oid
 where c.relnamespace = (select oid from pg_namespace where nspname = $1)
   and c.relkind = 'r'
   and c.relname like 'outbox\_%'
 order by c.relname
