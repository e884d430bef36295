-- For this transaction: do not wait until the commit is on the disk. If the server crashes right after it, everything that the chunk
-- took away is there again, and goes the next time.
select set_config('synchronous_commit', 'off', true)
