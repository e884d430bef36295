-- Takes the lease of a task that is due and that nobody works on. A task whose interval has become shorter is due by the new one.
--
-- $1 name, $2 owner, $3 lease in microseconds, $4 interval in microseconds
update $schema.outbox_task
   set owner = $2,
       lease_epoch = lease_epoch + 1,
       lease_until = cast((julianday('now') - 2440587.5) * 86400000000 as integer) + $3,
       started_at = cast((julianday('now') - 2440587.5) * 86400000000 as integer)
 where name = $1
   and (due_at <= cast((julianday('now') - 2440587.5) * 86400000000 as integer)
        or finished_at + $4 <= cast((julianday('now') - 2440587.5) * 86400000000 as integer))
   and (owner is null or lease_until <= cast((julianday('now') - 2440587.5) * 86400000000 as integer))
returning lease_epoch
