-- For this transaction: walk the indexes. The statistics of tables that fill and empty within minutes would now and then talk the
-- planner into reading one of them whole. Joins are lateral with a limit of 1 for the same reason: each row is one look into the
-- index, whatever the statistics say.
select set_config(name, 'off', true)
  from unnest(array['enable_seqscan', 'enable_bitmapscan', 'enable_hashjoin', 'enable_mergejoin', 'jit']) as name
