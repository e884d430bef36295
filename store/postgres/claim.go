package postgres

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// A claim is one statement: lease, candidates, what of them is eligible, what fits, the update, and the events of what was
// taken.
//
// The candidates of a claim by Due or Endpoint are the next $5 rows in its order. A candidate knows the row that stands just
// before it in its lane (behind). It is eligible when that row comes before it among the candidates and is eligible itself,
// or was taken by the same claim already ($7), or there is none. So each candidate costs one probe of the lane index,
// however long its lane is.
//
// A claim by Lane looks at its first rows in order and stops at the first one that is not ready.
//
// $1 destination, $2 epoch, $3 owner, $4 what is added to attempt_count, $5 candidates, $6 how many to take, $7 what the same
// claim has taken before, $8 how many bytes to take; from $9 on what the kind of claim needs.
const (
	claimLease = `
with lease as materialized (
  select true as mine
    from {schema}.outbox_cursor
   where destination = $1 and shard = {shard} and lease_epoch = $2 and lease_owner = $3
     for no key update
)`

	// $9, $10: next_attempt_at and seq of the last candidate before
	candidatesDue = `, candidate as materialized (
  select d.seq, d.status, d.endpoint, d.partition_key, d.next_attempt_at, d.last_error_code,
         row_number() over (order by d.next_attempt_at, d.seq) as place, {behind} as behind
    from {schema}.outbox_delivery d
   where (select mine from lease)
     and d.destination = $1
     and d.next_attempt_at <= now()
     and (d.next_attempt_at, d.seq) > ($9::timestamptz, $10::bigint){row_in_shard}
   order by d.next_attempt_at, d.seq limit $5
)`

	// $9 endpoint, $10: seq of the last candidate before
	candidatesParked = `, candidate as materialized (
  select d.seq, d.status, d.endpoint, d.partition_key, d.next_attempt_at, d.last_error_code,
         row_number() over (order by d.seq) as place, {behind} as behind
    from {schema}.outbox_delivery d
   where (select mine from lease)
     and d.destination = $1
     and d.endpoint = $9 and d.status = 'PENDING' and d.next_attempt_at is null
     and d.seq > $10{row_in_shard}
   order by d.seq limit $5
)`

	// behindSQL replaces {behind}: the open row that stands just before d in its lane.
	behindSQL = `(
         select b.seq
           from {schema}.outbox_delivery b
          where b.destination = $1 and b.endpoint = d.endpoint and b.partition_key = d.partition_key
            and b.seq < d.seq and b.status <> 'DISCARDED'
          order by b.seq desc limit 1)`

	// A row without a partition_key is in no lane.
	eligibleChained = `, chained as (
  select c.*,
         partition_key is null
         or behind = any ($7::bigint[])
         or behind is not distinct from max(seq) filter (where status <> 'DISCARDED') over before
            and coalesce(next_attempt_at >= max(next_attempt_at) filter (where status <> 'DISCARDED') over before, true)
            as follows
    from candidate c
  window before as (partition by endpoint, partition_key order by seq rows between unbounded preceding and 1 preceding)
), judged as (
  select c.*,
         follows and bool_and(follows or status = 'DISCARDED') over (partition by endpoint, partition_key order by seq)
         as eligible
    from chained c
)`

	// $9 endpoint, $10 partition_key
	candidatesLane = `, candidate as materialized (
  select d.seq, d.status, d.endpoint, d.next_attempt_at, d.last_error_code, d.seq as place,
         d.status = 'PENDING' and d.next_attempt_at is null or coalesce(d.next_attempt_at <= now(), false) as ready
    from {schema}.outbox_delivery d
   where (select mine from lease)
     and d.destination = $1 and d.endpoint = $9 and d.partition_key = $10
     and (d.status <> 'DISCARDED' or d.next_attempt_at is not null)
   order by d.seq limit $5
)`

	eligiblePrefix = `, judged as (
  select c.*, ready and bool_and(ready or status = 'DISCARDED') over (order by seq) as eligible
    from candidate c
)`

	// claimTake takes what is eligible and fits; size is Event.Size. Rows whose event is gone from the log are listed, for
	// missingSQL.
	//
	// The first row of the result tells how it went, and is there whenever the lease is.
	claimTake = `, sized as (
  select j.*, row_number() over in_place as nth, sum(size) over in_place as total
    from (select j.*,
                 coalesce(octet_length(e.payload::text), octet_length(e.payload_bytes), 0) + octet_length(e.headers::text)
                 + octet_length(e.event_id) + octet_length(e.topic_name) + octet_length(e.partition_key) + 256 as size
            from judged j join {schema}.outbox_event e on e.seq = j.seq
           where j.eligible) as j
  window in_place as (order by place)
), fitting as (
  select * from sized where nth <= $6 and (total <= $8 or nth = 1 and cardinality($7::bigint[]) = 0)
), taken as (
  update {schema}.outbox_delivery d
     set status = case d.status when 'DISCARDED' then d.status else 'PUBLISHING' end,
         attempt_count = d.attempt_count + case d.status when 'DISCARDED' then 0 else $4 end,
         next_attempt_at = null,
         partition_key = case d.status when 'DISCARDED' then null else d.partition_key end,
         locked_by = case d.status when 'DISCARDED' then null else $3 end,
         locked_at = case d.status when 'DISCARDED' then null else clock_timestamp() end
    from fitting f
   where d.destination = $1 and d.seq = f.seq and d.status = f.status
  returning d.seq, d.attempt_count, f.place, f.endpoint, f.status, f.last_error_code
)
select null::bigint as seq, {event},
       null::integer as attempt_count, null::text as endpoint, null::text as status, null::text as last_error_code,
       now() as now,
       (select count(*) from candidate) as candidates,
       (select seq from candidate order by place desc limit 1) as last_seq,
       (select next_attempt_at from candidate order by place desc limit 1) as last_due,
       (select count(*) from sized) as eligible,
       (select count(*) from fitting) as fitting,
       (select coalesce(bool_or(not eligible and status <> 'DISCARDED'), false)::integer::bigint from judged) as blocked,
       (select min(d.next_attempt_at) from {schema}.outbox_delivery d
         where d.destination = $1 and d.next_attempt_at > now(){row_in_shard}) as next_due,
       (select d.next_attempt_at from {schema}.outbox_delivery d
         where d.destination = $1 and d.next_attempt_at <= now() and d.seq not in (select seq from taken){row_in_shard}
         order by d.next_attempt_at limit 1) as due,
       nullif(array(select seq from judged where eligible and seq not in (select seq from sized) order by place), '{}') as missing
  from lease left join {schema}.outbox_event e on false
union all
(select e.seq, {event},
        t.attempt_count - case t.status when 'DISCARDED' then 0 else $4 end, coalesce(t.endpoint, ''), t.status,
        coalesce(t.last_error_code, ''), null, null, null, null, null, null, null, null, null, null
   from taken t join {schema}.outbox_event e on e.seq = t.seq
  order by t.place)`

	// missingSQL takes rows that a claim could have taken, but for their event that is gone from the log, out of their lanes and out
	// of the flow. It takes no others: whoever asked for a lane waits for what stands in that lane.
	//
	// $4: their numbers
	missingSQL = claimLease + `
update {schema}.outbox_delivery d
   set status = case d.status when 'DISCARDED' then d.status else 'QUARANTINED' end,
       next_attempt_at = null, partition_key = null,
       last_error_code = 'EVENT_MISSING', last_error_message = 'somebody deleted the event from outbox_event'
  from (select seq, endpoint, partition_key
          from {schema}.outbox_delivery
         where (select mine from lease) and destination = $1 and seq = any ($4::bigint[])) m
 where d.destination = $1 and d.seq = m.seq
   and (d.next_attempt_at <= now() or d.status = 'PENDING' and d.next_attempt_at is null)
   and not exists (select from {schema}.outbox_event e where e.seq = d.seq)
returning d.seq, coalesce(m.endpoint, ''), coalesce(m.partition_key, ''), d.attempt_count`
)

// Columns of a claim besides those of the event: of a row that was taken, then of the first row.
const (
	columnAttempts = eventColumns + iota
	columnEndpoint
	columnStatus
	columnLastErrorCode
	columnClaimNow
	columnCandidates
	columnLastSeq
	columnLastDue
	columnEligible
	columnFitting
	columnBlocked
	columnNextDue
	columnDue
	columnMissing
	claimColumns
)

// minCandidates is the least number of rows that a claim looks at in one statement.
const minCandidates = 256

// Claim implements relay.Ledger.
func (s *Store) Claim(ctx context.Context, l relay.LeaseID, c relay.Claim) (relay.Claimed, error) {
	claimed, err := s.claim(ctx, l, c)
	if errors.Is(err, relay.ErrLeaseLost) {
		return relay.Claimed{}, err
	}
	if err != nil {
		return relay.Claimed{}, s.failed("claim deliveries of "+l.Destination, err)
	}
	return claimed, nil
}

// claim repeats the statement while all candidates were looked at and there may be eligible ones behind them: a mass of rows
// that wait for the heads of their lanes must not hide the others.
func (s *Store) claim(ctx context.Context, l relay.LeaseID, c relay.Claim) (relay.Claimed, error) {
	r := claimReader{claim: c, lastDue: math.MinInt64, lastSeq: -1, seqs: []int64{}}
	if c.Endpoint != nil {
		r.lastSeq = c.After
	}
	for {
		sql, args := s.claimStatement(l, &r)
		rows, err := s.pool.Query(ctx, sql, args...)
		if err != nil {
			return relay.Claimed{}, err
		}
		err = r.take(rows)
		rows.Close()
		if err := errors.Join(err, rows.Err()); err != nil {
			return relay.Claimed{}, err
		}
		if r.done() {
			break
		}
	}
	if room := c.Limit - len(r.claimed.Deliveries); len(r.missing) > 0 && room > 0 {
		if err := s.takeMissing(ctx, l, r.missing[:min(len(r.missing), room)], &r.claimed); err != nil {
			return relay.Claimed{}, err
		}
	}
	return r.finish(), nil
}

// takeMissing adds what has no event any more, as if an operator had discarded it.
func (s *Store) takeMissing(ctx context.Context, l relay.LeaseID, seqs []int64, claimed *relay.Claimed) error {
	rows, err := s.pool.Query(ctx, s.statements(l.Shard).missing, l.Destination, l.Epoch, l.Owner, seqs)
	if err != nil {
		return err
	}
	missing, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (relay.Open, error) {
		open := relay.Open{Event: &relay.Event{}, Status: relay.StatusDiscarded, LastErrorCode: relay.CodeEventMissing}
		err := row.Scan(&open.Event.Seq, &open.Endpoint, &open.Event.Key, &open.Attempts)
		return open, err
	})
	claimed.Deliveries = append(claimed.Deliveries, missing...)
	return err
}

func (s *Store) claimStatement(l relay.LeaseID, r *claimReader) (sql string, args []any) {
	c := r.claim
	left := max(c.Limit, 1) - len(r.claimed.Deliveries)
	r.asked = max(left+1, minCandidates)
	charge := 0
	if c.Charge {
		charge = 1
	}
	texts := s.statements(l.Shard)
	args = []any{allBinary, l.Destination, l.Epoch, l.Owner, charge, r.asked, left, r.seqs, c.MaxBytes - r.bytes}
	switch {
	case c.Lane != nil:
		return texts.claimLane, append(args, clean(c.Lane.Endpoint), clean(c.Lane.Key))
	case c.Endpoint != nil:
		return texts.claimParked, append(args, clean(*c.Endpoint), r.lastSeq)
	}
	return texts.claimDue, append(args, r.after(), r.lastSeq)
}

// claimReader gathers what the statements of one claim have taken.
type claimReader struct {
	claim   relay.Claim
	claimed relay.Claimed
	events  eventReader
	bytes   int     // of what was taken
	seqs    []int64 // what was taken
	missing []int64 // what could have been taken, but for the event that is gone

	// Of the last statement: how many candidates were asked for, and what its first row tells. Times are in the database's
	// own format.
	asked              int
	candidates         int64
	eligible, fitting  int64
	blocked            bool
	lastSeq, lastDue   int64
	now, nextDue       int64
	hasNextDue, hasDue bool
}

// take reads the result of one statement.
func (r *claimReader) take(rows pgx.Rows) error {
	if !rows.Next() {
		if err := rows.Err(); err != nil {
			return err
		}
		return relay.ErrLeaseLost
	}
	values := rows.RawValues()
	if err := r.head(values); err != nil {
		return err
	}
	if gone := values[columnMissing]; gone != nil {
		var seqs []int64
		if err := rows.Conn().TypeMap().Scan(pgtype.Int8ArrayOID, pgx.BinaryFormatCode, gone, &seqs); err != nil {
			return fmt.Errorf("numbers without an event: %w", err)
		}
		r.missing = append(r.missing, seqs...)
	}
	for rows.Next() {
		if err := r.open(rows.RawValues()); err != nil {
			return err
		}
	}
	return nil
}

func (r *claimReader) head(values [][]byte) error {
	if len(values) != claimColumns {
		return fmt.Errorf("a claimed row has %d columns, want %d", len(values), claimColumns)
	}
	var blocked int64
	var errs []error
	set := func(column int, to *int64) bool {
		if values[column] == nil {
			return false
		}
		var err error
		*to, err = bigint(values[column])
		errs = append(errs, err)
		return true
	}
	set(columnClaimNow, &r.now)
	set(columnCandidates, &r.candidates)
	set(columnLastSeq, &r.lastSeq)
	set(columnLastDue, &r.lastDue)
	set(columnEligible, &r.eligible)
	set(columnFitting, &r.fitting)
	set(columnBlocked, &blocked)
	r.hasNextDue = set(columnNextDue, &r.nextDue)
	var due int64
	r.hasDue = set(columnDue, &due)
	r.blocked = blocked != 0
	return errors.Join(errs...)
}

func (r *claimReader) open(values [][]byte) error {
	event, err := r.events.read(values, r.now)
	if err != nil {
		return fmt.Errorf("claimed event: %w", err)
	}
	attempts, err := integer(values[columnAttempts])
	if err != nil {
		return fmt.Errorf("claimed event %d: %w", event.Seq, err)
	}
	r.claimed.Deliveries = append(r.claimed.Deliveries, relay.Open{
		Event:         event,
		Endpoint:      r.events.repeated(values[columnEndpoint]),
		Attempts:      attempts,
		Status:        relay.Status(r.events.repeated(values[columnStatus])),
		LastErrorCode: r.events.repeated(values[columnLastErrorCode]),
	})
	r.bytes += event.Size()
	r.seqs = append(r.seqs, event.Seq)
	return nil
}

// after is the time of the last candidate, from which the next statement goes on.
func (r *claimReader) after() pgtype.Timestamptz {
	if r.lastDue == math.MinInt64 {
		return pgtype.Timestamptz{InfinityModifier: pgtype.NegativeInfinity, Valid: true}
	}
	return pgtype.Timestamptz{Time: timestamp(r.lastDue), Valid: true}
}

// full says that Limit was reached, cut that something eligible was left behind, and exhausted that there were no more
// candidates.
func (r *claimReader) full() bool      { return len(r.claimed.Deliveries) >= r.claim.Limit }
func (r *claimReader) cut() bool       { return r.eligible > r.fitting }
func (r *claimReader) exhausted() bool { return r.candidates < int64(r.asked) }

func (r *claimReader) done() bool {
	return r.claim.Lane != nil || r.full() || r.cut() || r.exhausted()
}

func (r *claimReader) finish() relay.Claimed {
	r.claimed.More = r.full() || r.cut()
	r.claimed.Blocked = r.blocked && r.claim.Lane != nil
	r.claimed.NextDue = r.nextIn()
	return r.claimed
}

// nextIn is the time until the next row is due. After a claim by Due, what is due and was not taken waits for its lane,
// unless the claim did not get to it.
func (r *claimReader) nextIn() time.Duration {
	due := r.hasDue
	if r.claim.Due {
		due = r.cut() || !r.exhausted()
	}
	switch {
	case due:
		return 0
	case r.hasNextDue:
		return max(0, between(r.now, r.nextDue))
	}
	return -1
}
