-- Takes the lease of a task that is due and that nobody works on. A task whose interval has become shorter is due by the new one.
--
-- $1 name, $2 owner, $3 lease in microseconds, $4 interval in microseconds
update $schema.outbox_task
   set owner = $2,
       lease_epoch = lease_epoch + 1,
       lease_until = clock_timestamp() + $3::bigint * interval '1 microsecond',
       started_at = clock_timestamp()
 where name = $1
   and (due_at <= clock_timestamp() or finished_at + $4::bigint * interval '1 microsecond' <= clock_timestamp())
   and (owner is null or lease_until <= clock_timestamp())
returning lease_epoch
