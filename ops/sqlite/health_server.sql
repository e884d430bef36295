-- The file, in pages, from its header alone.
select 'SQLite ' || sqlite_version(),
       cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000,
       (select page_size from pragma_page_size),
       (select page_count from pragma_page_count),
       (select freelist_count from pragma_freelist_count),
       (select journal_mode from pragma_journal_mode),
       coalesce((select file from pragma_database_list where name = 'main'), '')
