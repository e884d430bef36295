-- The server and the database, from the catalogues alone.
select 'PostgreSQL ' || current_setting('server_version'),
       (extract(epoch from clock_timestamp()) * 1000000)::bigint,
       pg_database_size(current_database()),
       current_setting('autovacuum') = 'on',
       current_setting('autovacuum_vacuum_scale_factor')::float8,
       pg_has_role(current_user, 'pg_read_all_stats', 'usage')
