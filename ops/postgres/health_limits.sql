-- For this transaction: a look must not wait behind a migration, nor think for long.
select set_config('lock_timeout', '1s', true), set_config('statement_timeout', '5s', true)
