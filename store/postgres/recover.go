package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// Recover is one transaction of three statements; it is called once for a lease.
const (
	// lockSQL holds the lease until the transaction ends.
	lockSQL = `
select position, settle_number
  from {schema}.outbox_cursor
 where destination = $1 and shard = {shard} and lease_epoch = $2 and lease_owner = $3
   for no key update`

	// takeOverSQL frees what a former owner had in flight. $2: how many numbers to list
	takeOverSQL = `
with freed as (
  update {schema}.outbox_delivery d
     set status = case when attempt_count > 0 then 'FAILED' else 'PENDING' end,
         next_attempt_at = now(),
         last_error_code = 'TAKEOVER',
         locked_by = null,
         locked_at = null
   where destination = $1 and status = 'PUBLISHING'{row_in_shard}
  returning seq
)
select (select count(*) from freed),
       array(select seq from freed order by seq limit $2)`

	// openSQL lists what is open. Endpoints are found by a loose index scan: one probe each, however many rows are parked; those of
	// other shards are among them, and nothing will be found at them.
	//
	// $2 position, $3: how many lanes to list
	openSQL = `
with recursive endpoint (name) as (
  (select d.endpoint
     from {schema}.outbox_delivery d
    where d.destination = $1 and d.status = 'PENDING' and d.next_attempt_at is null
    order by d.endpoint limit 1)
  union all
  select (select d.endpoint
            from {schema}.outbox_delivery d
           where d.destination = $1 and d.status = 'PENDING' and d.next_attempt_at is null and d.endpoint > e.name
           order by d.endpoint limit 1)
    from endpoint e
   where e.name is not null
), lane (endpoint, key) as (
  select d.endpoint, d.partition_key
    from {schema}.outbox_delivery d
   where d.destination = $1 and d.status in ('FAILED', 'QUARANTINED') and d.partition_key is not null{row_in_shard}
  union
  select d.endpoint, d.partition_key
    from {schema}.outbox_delivery d
   where d.destination = $1 and d.next_attempt_at is not null and d.partition_key is not null
     and d.status not in ('PUBLISHED', 'DISCARDED'){row_in_shard}
  limit $3
)
select array(select seq from {schema}.outbox_delivery d where destination = $1 and seq > $2{row_in_shard} order by seq),
       array(select coalesce(endpoint, '') from lane),
       array(select key from lane),
       array(select name from endpoint where name is not null),
       (select (extract(epoch from least(greatest(next_attempt_at, now()), now() + interval '100 years') - now())
                * 1000000)::bigint
          from {schema}.outbox_delivery d
         where destination = $1 and next_attempt_at is not null{row_in_shard}
         order by next_attempt_at limit 1)`
)

// Recover implements relay.Ledger.
func (s *Store) Recover(ctx context.Context, l relay.LeaseID, limit int) (relay.Recovered, error) {
	var found relay.Recovered
	texts := s.statements(l.Shard)
	err := pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		var position, settles int64
		err := tx.QueryRow(ctx, texts.lock, l.Destination, l.Epoch, l.Owner).Scan(&position, &settles)
		if errors.Is(err, pgx.ErrNoRows) {
			return relay.ErrLeaseLost
		}
		if err != nil {
			return err
		}
		if settles > 0 {
			return fmt.Errorf("it comes after settle %d, so it was given up: nothing was changed", settles)
		}
		err = tx.QueryRow(ctx, texts.takeOver, l.Destination, limit).Scan(&found.PublishingCount, &found.Publishing)
		if err != nil {
			return err
		}
		return scanOpen(tx.QueryRow(ctx, texts.open, l.Destination, position, limit+1), limit, &found)
	})
	if errors.Is(err, relay.ErrLeaseLost) {
		return relay.Recovered{}, relay.ErrLeaseLost
	}
	if err != nil {
		return relay.Recovered{}, s.failed("recover "+l.Destination, err)
	}
	return found, nil
}

func scanOpen(row pgx.Row, limit int, found *relay.Recovered) error {
	var endpoints, keys []string
	var nextDue *int64
	if err := row.Scan(&found.Above, &endpoints, &keys, &found.Endpoints, &nextDue); err != nil {
		return err
	}
	found.LanesCut = len(keys) > limit
	for i := range min(len(keys), limit) {
		found.Lanes = append(found.Lanes, relay.LaneID{Endpoint: endpoints[i], Key: keys[i]})
	}
	found.NextDue = -1
	if nextDue != nil {
		found.NextDue = time.Duration(*nextDue) * time.Microsecond
	}
	return nil
}
