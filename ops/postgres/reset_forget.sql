-- Takes the next $3 rows from the number $2 on out of the ledger of the destination $1.
delete from $schema.outbox_delivery
 where destination = $1
   and seq in (select seq from $schema.outbox_delivery where destination = $1 and seq >= $2 order by seq limit $3)
