// Package postgres keeps the outbox in PostgreSQL 14 or later: the log that the relay reads, its leases, and its ledger.
//
//	transaction → log → lanes → destination → outcome → settle
//	              └─ Read            Claim ─┘           └─ Settle
//
// Store implements relay.Store and relay.Waker. The tables are made by package outbox/schema.
//
// As a rule a call is one statement: one round trip, one snapshot, a transaction by itself. What changes something locks the
// cursor row of the lease first, and changes nothing when the epoch no longer fits. Times that are compared are the
// database's; nothing here looks at the clock of this machine.
//
// The statements were written for one plan each, that of the index. The statistics of tables that fill and empty within
// minutes would now and then talk the planner out of it, so a connection switches the other plans off. See settings.
//
// A connection may go through pgbouncer in session mode. Transaction mode is not supported: prepared statements, those
// settings and LISTEN belong to a session.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pillarbox-dev/pillarbox/outbox/schema"
	"github.com/pillarbox-dev/pillarbox/relay"
)

// Config says where the outbox is.
type Config struct {
	// URL is a connection string, as a URL or in keyword form: postgres://user:password@host:5432/database. What it leaves
	// out comes from the usual PG… environment variables and the password file. Required.
	URL string
	// Schema holds the tables. Default public.
	Schema string
	// MaxConns bounds the connections, besides the one that listens. A unit uses two at once: it reads ahead while it settles.
	// Default 10, at least 2.
	MaxConns int
	// ConnectTimeout bounds the making of a connection. Default 10 s, or what connect_timeout in the URL says.
	ConnectTimeout time.Duration
	// OnSettle, unless nil, is called in the transaction of each settle that writes deliveries, after the cursor moved and the
	// rows were written: what it writes through tx commits with them, or not at all. See OnSettle.
	OnSettle OnSettle
}

// Store is the outbox in one schema of one database. It serves all units of a process at once.
//
// The pool is pgxpool: it replaces broken connections and bounds their number, which is all that is needed here. It is not
// shared with the service's own work, whose long transactions would keep the relay waiting.
type Store struct {
	pool   *pgxpool.Pool
	schema string
	texts  sync.Map // *statements by relay.Shard
	pages  pageSize
	places places

	onSettle OnSettle
}

var (
	_ relay.Store = (*Store)(nil)
	_ relay.Waker = (*Store)(nil)
)

// Open connects, and makes sure of everything that Check looks at. Its error holds all problems at once, each with a hint
// what to do.
func Open(ctx context.Context, c Config) (*Store, error) {
	c, poolConfig, err := c.parse()
	if err != nil {
		return nil, err
	}
	pool, err := pgxpool.NewWithConfig(ctx, poolConfig)
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	s := &Store{pool: pool, schema: c.Schema, onSettle: c.OnSettle}
	if problems := s.Check(ctx); len(problems) > 0 {
		pool.Close()
		return nil, errors.Join(problems...)
	}
	return s, nil
}

// Close ends all connections but the listening one, which ends with the context of Listen. It waits for calls under way.
func (s *Store) Close() { s.pool.Close() }

const (
	defaultMaxConns       = 10
	defaultConnectTimeout = 10 * time.Second
	// pingTimeout bounds the try of a connection that has been idle; one that does not answer is replaced.
	pingTimeout = 2 * time.Second
)

// parse fills in the defaults and returns all problems at once. No error holds the password.
func (c Config) parse() (Config, *pgxpool.Config, error) {
	var problems []error
	bad := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf("postgres: "+format, args...))
	}
	if c.Schema == "" {
		c.Schema = "public"
	}
	if err := schema.CheckName(schema.Postgres, c.Schema); err != nil {
		bad("%w", err)
	}
	if c.MaxConns == 0 {
		c.MaxConns = defaultMaxConns
	}
	if c.MaxConns < 2 || c.MaxConns > 10_000 {
		bad("max_conns %d is outside 2 to 10000: a unit reads while it settles, so give two for each destination", c.MaxConns)
	}
	if c.ConnectTimeout < 0 {
		bad("connect timeout %v is negative", c.ConnectTimeout)
	}
	poolConfig, err := pgxpool.ParseConfig(c.URL)
	switch {
	case strings.TrimSpace(c.URL) == "":
		bad("the URL is missing: give postgres://user@host:5432/database")
	case err != nil:
		bad("the URL is not one of PostgreSQL (postgres://user@host:5432/database, or host=… dbname=…): %w", err)
	}
	if len(problems) > 0 {
		return c, nil, errors.Join(problems...)
	}
	poolConfig.MaxConns = int32(c.MaxConns)
	poolConfig.AfterConnect = applySettings
	poolConfig.PingTimeout = pingTimeout
	conn := poolConfig.ConnConfig
	if c.ConnectTimeout > 0 {
		conn.ConnectTimeout = c.ConnectTimeout
	} else if conn.ConnectTimeout == 0 {
		conn.ConnectTimeout = defaultConnectTimeout
	}
	conn.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement
	if _, named := conn.RuntimeParams["application_name"]; !named {
		conn.RuntimeParams["application_name"] = "pillarbox"
	}
	return c, poolConfig, nil
}

// settings of every connection of the pool. They are set by a statement and not as parameters of the start-up message, of
// which pgbouncer refuses those that it does not know.
//
// READ COMMITTED: a statement that waited for the cursor row must see who holds the lease now, not fail.
// enable_…: each statement is to walk its index; sorts stay possible. plan_cache_mode: as there is one plan, it is made once.
// jit: compiling takes longer than any of them.
// …timeout, tcp_…: a relay that was stopped or cut off in the middle of a settle must not hold its locks for long.
const settings = `
select set_config(name, value, false)
  from (values ('default_transaction_isolation', 'read committed'),
               ('enable_seqscan', 'off'),
               ('enable_bitmapscan', 'off'),
               ('enable_hashjoin', 'off'),
               ('enable_mergejoin', 'off'),
               ('plan_cache_mode', 'force_generic_plan'),
               ('jit', 'off'),
               ('idle_in_transaction_session_timeout', '10s'),
               ('statement_timeout', '60s'),
               ('tcp_keepalives_idle', '10'),
               ('tcp_keepalives_interval', '5'),
               ('tcp_keepalives_count', '3')) as setting (name, value)`

func applySettings(ctx context.Context, conn *pgx.Conn) error {
	if _, err := conn.Exec(ctx, settings, pgx.QueryExecModeExec); err != nil {
		return fmt.Errorf("prepare the connection: %w", err)
	}
	return nil
}

// statements are the texts of this package for one shard, with the names of the schema and of the columns filled in.
type statements struct {
	read                                 [2][2]string // by gaps, by topics
	acquire, holder, create, createAtEnd string
	renew, release                       string
	settleByKey, settleByPlace           settleStatements
	repeated, copy                       string
	lock, takeOver, open                 string
	claimDue, claimLane, claimParked     string
	missing                              string
}

// settleStatements move the cursor, and write published rows or rows of any kind.
type settleStatements struct{ cursor, published, rows string }

// statements returns the texts for a shard, which are made once.
func (s *Store) statements(shard relay.Shard) *statements {
	if shard.Whole() {
		shard = relay.Shard{}
	}
	texts, known := s.texts.Load(shard)
	if !known {
		texts, _ = s.texts.LoadOrStore(shard, newStatements(s.schema, shard))
	}
	return texts.(*statements)
}

// What makes a statement one for a shard: of a destination in one piece nothing is asked. A row that stands in no lane's way has no
// key; its event has.
const (
	eventInShard = ` and {schema}.outbox_shard(s.partition_key, s.seq, {shards}) = {shard}`
	rowInShard   = `
     and {schema}.outbox_shard(coalesce(d.partition_key,
                               (select e.partition_key from {schema}.outbox_event e where e.seq = d.seq), ''), d.seq, {shards}) = {shard}`
)

func newStatements(schemaName string, shard relay.Shard) *statements {
	event, row := eventInShard, rowInShard
	if shard.Whole() {
		event, row = "", ""
	}
	fill := func(parts ...string) string {
		text := strings.Join(parts, "")
		for _, name := range []struct{ placeholder, sql string }{
			{"{event}", eventSQL}, {"{pause}", pauseSQL}, {"{last_seq}", lastSeqSQL}, {"{behind}", behindSQL},
			{"{event_in_shard}", event}, {"{row_in_shard}", row},
			{"{shard}", strconv.Itoa(shard.Number)}, {"{shards}", strconv.Itoa(shard.Count())},
			{"{schema}", pgx.Identifier{schemaName}.Sanitize()}, // last: the others have it in them
		} {
			text = strings.ReplaceAll(text, name.placeholder, name.sql)
		}
		return text
	}
	settle := func(found string) settleStatements {
		moved := strings.ReplaceAll(settleCursor, "{found}", found)
		return settleStatements{
			cursor:    fill(moved, settleEnd),
			published: fill(moved, settlePublished, settleEnd),
			rows:      fill(moved, settleRows, settleEnd),
		}
	}
	return &statements{
		read: [2][2]string{
			{fill(readHead, readRows), fill(readHead, readRowsTopics)},
			{fill(readHead, readGaps, readRows), fill(readHead, readGapsTopics, readRowsTopics)},
		},
		acquire:       fill(acquireSQL),
		holder:        fill(holderSQL),
		create:        fill(createSQL),
		createAtEnd:   fill(createAtEndSQL),
		renew:         fill(renewSQL),
		release:       fill(releaseSQL),
		settleByKey:   settle(foundByKey),
		settleByPlace: settle(foundByPlace),
		repeated:      fill(repeatedSQL),
		copy:          fill(copySQL),
		lock:          fill(lockSQL),
		takeOver:      fill(takeOverSQL),
		open:          fill(openSQL),
		claimDue:      fill(claimLease, candidatesDue, eligibleChained, claimTake),
		claimLane:     fill(claimLease, candidatesLane, eligiblePrefix, claimTake),
		claimParked:   fill(claimLease, candidatesParked, eligibleChained, claimTake),
		missing:       fill(missingSQL),
	}
}
