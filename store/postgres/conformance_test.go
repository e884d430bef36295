package postgres_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pillarbox-dev/pillarbox/internal/pgtest"
	"github.com/pillarbox-dev/pillarbox/relay"
	"github.com/pillarbox-dev/pillarbox/relay/relaytest"
	"github.com/pillarbox-dev/pillarbox/store/postgres"
)

func TestConformance(t *testing.T) {
	url := pgtest.Database(t)
	schemas := 0
	features := relaytest.StoreFeatures{Gaps: true, TwoPhase: true, Wake: true, Shards: true}
	relaytest.TestStore(t, features, func(t *testing.T) relaytest.Backend {
		schemas++
		name := fmt.Sprintf(`It's "schema" %d`, schemas) // a new one is made sooner than a new database
		migrate(t, url, name)
		return &backend{store: open(t, postgres.Config{URL: url, Schema: name}), pool: poolOf(t, url, name), schema: name}
	})
}

// poolOf returns connections that find the tables without the name of the schema.
func poolOf(t testing.TB, url, schemaName string) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	config.ConnConfig.RuntimeParams["search_path"] = pgx.Identifier{schemaName}.Sanitize()
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// backend is what the conformance suite needs besides the store.
type backend struct {
	store  *postgres.Store
	pool   *pgxpool.Pool
	schema string
	madeUp atomic.Int64
}

func (b *backend) Store() relay.Store { return b.store }

const selectCursors = `
select shard, shards, position, array(select lower(g) from unnest(gaps) g order by g), array(select upper(g) - 1 from unnest(gaps) g order by g),
       in_flight_to, acquired_position, topics, coalesce(lease_owner, ''), lease_epoch, lease_expires_at, asleep,
       coalesce(paused_reason, ''), coalesce(paused_by, ''), failing_since, coalesce(last_error_code, ''), crash_count,
       settle_number
  from outbox_cursor where destination = $1 order by shard`

func (b *backend) Cursor(t testing.TB, destination string) (row relaytest.CursorRow, ok bool) {
	t.Helper()
	rows := b.Cursors(t, destination)
	if len(rows) == 0 {
		return row, false
	}
	return rows[0], true
}

func (b *backend) Cursors(t testing.TB, destination string) []relaytest.CursorRow {
	t.Helper()
	rows, err := b.pool.Query(context.Background(), selectCursors, destination)
	if err != nil {
		t.Fatal(err)
	}
	var numbers [][2]int
	all, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (c relaytest.CursorRow, err error) {
		var shard, shards int
		var first, last []int64
		var expires, failing *time.Time
		err = r.Scan(&shard, &shards, &c.Position, &first, &last, &c.InFlightTo,
			&c.AcquiredPosition, &c.Topics, &c.Owner, &c.Epoch, &expires, &c.Asleep,
			&c.Pause.Reason, &c.Pause.By, &failing, &c.ErrorCode, &c.CrashCount, &c.SettleNumber)
		for i := range first {
			c.Gaps = append(c.Gaps, relay.Range{First: first[i], Last: last[i]})
		}
		if len(c.Topics) == 0 {
			c.Topics = nil
		}
		c.ExpiresAt, c.FailingSince = timeOf(expires), timeOf(failing)
		numbers = append(numbers, [2]int{shard, shards})
		return c, err
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range numbers {
		if n != [2]int{i, len(all)} {
			t.Fatalf("cursor %d of %d of %s says that it is %d of %d", i, len(all), destination, n[0], n[1])
		}
	}
	return all
}

func (b *backend) DeleteEvents(t testing.TB, seqs ...int64) {
	t.Helper()
	if _, err := b.pool.Exec(context.Background(), "delete from outbox_event where seq = any($1)", seqs); err != nil {
		t.Fatal(err)
	}
}

const selectDeliveries = `
select seq, status, attempt_count, coalesce(endpoint, ''), partition_key is not null, coalesce(partition_key, ''),
       next_attempt_at, last_attempt_at, published_at, coalesce(locked_by, ''), locked_at, coalesce(receipt, ''),
       coalesce(last_error_code, ''), coalesce(last_error_message, '')
  from outbox_delivery where destination = $1 order by seq`

func (b *backend) Deliveries(t testing.TB, destination string) []relaytest.DeliveryRow {
	t.Helper()
	rows, err := b.pool.Query(context.Background(), selectDeliveries, destination)
	if err != nil {
		t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (d relaytest.DeliveryRow, err error) {
		var next, last, published, locked *time.Time
		err = r.Scan(&d.Seq, &d.Status, &d.Attempts, &d.Endpoint, &d.OpenLane, &d.Key, &next, &last, &published,
			&d.LockedBy, &locked, &d.Receipt, &d.ErrorCode, &d.ErrorMessage)
		d.NextAttemptAt, d.LastAttemptAt = timeOf(next), timeOf(last)
		d.PublishedAt, d.LockedAt = timeOf(published), timeOf(locked)
		return d, err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func timeOf(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}

func (b *backend) SetPause(t testing.TB, destination string, p relay.Pause) {
	t.Helper()
	tag, err := b.pool.Exec(context.Background(), `update outbox_cursor set paused_at = case when $2 <> '' then now() end,
		paused_reason = nullif($2, ''), paused_by = nullif($3, '') where destination = $1`, destination, p.Reason, p.By)
	if err != nil || tag.RowsAffected() == 0 {
		t.Fatalf("pause %s: %v, %v", destination, tag, err)
	}
}

func (b *backend) Begin(t testing.TB) relaytest.Producer {
	t.Helper()
	tx, err := b.pool.Begin(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return &producer{backend: b, tx: tx}
}

// producer inserts with plain SQL.
type producer struct {
	*backend
	tx       pgx.Tx
	prepared string // the name that it was prepared under
}

const insertEvent = `
insert into outbox_event (seq, event_id, topic_name, partition_key, aggregate_type, aggregate_id, aggregate_version, event_type,
       event_version, schema_ref, payload, payload_bytes, headers, available_at, created_at)
select coalesce(nullif($1::bigint, 0), nextval(case when pg_current_xact_id() is not null then 'outbox_event_seq'::regclass end)),
       $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, coalesce($13, '{}'::json),
       clock_timestamp() + $14::bigint * interval '1 microsecond', coalesce($15, clock_timestamp())
returning seq`

// Insert wakes a relay that sleeps, as Enqueue does. A number of the caller's choice moves the sequence up, as a number that
// comes from it would have.
func (p *producer) Insert(t testing.TB, e relay.Event) (seq int64) {
	t.Helper()
	ctx := context.Background()
	number := p.madeUp.Add(1)
	if e.ID == "" {
		e.ID = fmt.Sprintf("made-up-%d", number)
	}
	if e.Topic == "" {
		e.Topic = "topic"
	}
	if e.Type == "" {
		e.Type = "Type"
	}
	var json, headers *string
	var binary []byte
	switch {
	case e.Binary:
		binary = e.Payload
	case e.Payload != nil:
		text := string(e.Payload)
		json = &text
	}
	if e.Headers != nil {
		text := string(e.Headers)
		headers = &text
	}
	var available *int64
	if e.AvailableIn != 0 {
		us := e.AvailableIn.Microseconds()
		available = &us
	}
	var created *time.Time
	if !e.CreatedAt.IsZero() {
		created = &e.CreatedAt
	}
	err := p.tx.QueryRow(ctx, insertEvent, e.Seq, e.ID, e.Topic, e.Key, e.AggregateType, e.AggregateID, e.AggregateVersion,
		e.Type, e.Version, e.SchemaRef, json, binary, headers, available, created).Scan(&seq)
	if err != nil {
		t.Fatalf("insert %+v: %v", e, err)
	}
	if e.Seq != 0 {
		p.exec(t, "select setval('outbox_event_seq', greatest($1, last_value)) from outbox_event_seq", e.Seq)
	}
	p.exec(t, "select pg_notify('pillarbox', $1) from outbox_cursor where asleep limit 1", p.schema)
	return seq
}

func (p *producer) exec(t testing.TB, sql string, args ...any) {
	t.Helper()
	if _, err := p.tx.Exec(context.Background(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func (p *producer) Commit(t testing.TB)   { p.end(t, "commit") }
func (p *producer) Rollback(t testing.TB) { p.end(t, "rollback") }

func (p *producer) end(t testing.TB, how string) {
	t.Helper()
	var err error
	switch {
	case p.prepared != "":
		_, err = p.pool.Exec(context.Background(), fmt.Sprintf("%s prepared '%s'", how, p.prepared))
	case how == "commit":
		err = p.tx.Commit(context.Background())
	default:
		err = p.tx.Rollback(context.Background())
	}
	if err != nil {
		t.Fatalf("%s: %v", how, err)
	}
}

func (p *producer) Savepoint(t testing.TB)  { p.exec(t, "savepoint s") }
func (p *producer) RollbackTo(t testing.TB) { p.exec(t, "rollback to s") }

// Prepare names the transaction after its schema and number: names are the whole server's.
func (p *producer) Prepare(t testing.TB) {
	t.Helper()
	p.prepared = strings.ReplaceAll(fmt.Sprintf("%s-%d", p.schema, p.madeUp.Add(1)), "'", "''")
	p.exec(t, fmt.Sprintf("prepare transaction '%s'", p.prepared))
	p.tx.Rollback(context.Background()) // the session's part has ended
}
