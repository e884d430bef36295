-- For this transaction: do not wait until the commit is on the disk. If the server crashes right after it, everything that the chunk
-- took away is there again, and goes the next time. And do not plan a statement anew for its values: every chunk is like the last.
select set_config('synchronous_commit', 'off', true), set_config('plan_cache_mode', 'force_generic_plan', true)
