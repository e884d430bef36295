package crashtest

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"path/filepath"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"

	"github.com/pillarbox-dev/pillarbox/internal/pgtest"
	"github.com/pillarbox-dev/pillarbox/outbox"
	"github.com/pillarbox-dev/pillarbox/outbox/schema"
	"github.com/pillarbox-dev/pillarbox/relay"
	"github.com/pillarbox-dev/pillarbox/store/postgres"
	"github.com/pillarbox-dev/pillarbox/store/sqlite"
)

// dialect is a kind of database.
type dialect struct {
	outbox    outbox.Dialect
	schema    string
	create    func(t *testing.T) (database string)
	openDB    func(ctx context.Context, database string) (*sql.DB, error)
	openStore func(ctx context.Context, database string) (relay.Store, error)
	// gapsSQL gives a cursor's gaps as a JSON list of pairs.
	gapsSQL string
	// longest is for how long a producer's transaction may stay open; in SQLite nobody else writes meanwhile.
	longest time.Duration
	// pastSQL is a time long ago.
	pastSQL string
}

var dialects = map[string]dialect{
	"sqlite": {
		outbox: outbox.SQLite,
		create: func(t *testing.T) string { return filepath.Join(t.TempDir(), "shop.db") },
		openDB: func(ctx context.Context, database string) (*sql.DB, error) {
			return sqlite.OpenDB(ctx, sqlite.Config{Path: database, Readers: 10})
		},
		openStore: func(ctx context.Context, database string) (relay.Store, error) {
			return sqlite.Open(ctx, sqlite.Config{Path: database})
		},
		gapsSQL: "gaps",
		longest: 20 * time.Millisecond,
		pastSQL: "0",
	},
	"postgres": {
		outbox: outbox.Postgres,
		schema: "public",
		create: func(t *testing.T) string { return pgtest.Database(t) },
		openDB: func(_ context.Context, database string) (*sql.DB, error) { return sql.Open("pgx", database) },
		openStore: func(ctx context.Context, database string) (relay.Store, error) {
			return postgres.Open(ctx, postgres.Config{URL: database})
		},
		gapsSQL: "(select coalesce(json_agg(json_build_array(lower(g), upper(g) - 1)), '[]') from unnest(gaps) g)::text",
		longest: 500 * time.Millisecond,
		pastSQL: "'epoch'",
	},
}

// bench is a database with its receiver.
type bench struct {
	*testing.T
	dialect
	name     string
	database string
	db       *sql.DB
	receiver *receiver
	relays   int
	// brokers and topic are set where events go to Kafka.
	brokers []string
	topic   string
	// repeats: the same relay may send something twice, having lost its lease or an answer in between.
	repeats bool
}

// newBench makes a database, migrated and with a table of business rows. database is "" or one that is there already.
func newBench(t *testing.T, name, database string) *bench {
	t.Helper()
	b := &bench{T: t, dialect: dialects[name], name: name, database: database, receiver: newReceiver(t)}
	if database == "" {
		b.database = b.create(t)
	}
	var err error
	if b.db, err = b.openDB(t.Context(), b.database); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.db.Close() })
	if _, err := schema.Migrate(t.Context(), b.db, b.outbox, b.schema); err != nil {
		t.Fatal(err)
	}
	if _, err := b.db.ExecContext(t.Context(), "create table business (id varchar(100) primary key)"); err != nil {
		t.Fatal(err)
	}
	return b
}

// relay starts a relay, which kills itself the nth time it passes a point, or never when that is "".
func (b *bench) relay(args processArgs) *process {
	b.Helper()
	b.relays++
	args.Name = "relay-" + string(rune('a'+b.relays-1))
	args.Lease = cmp.Or(args.Lease, longLease)
	args.Dialect, args.Database, args.Receiver = b.name, b.database, b.receiver.url
	args.Brokers, args.Topic = b.brokers, b.topic
	return start(b.T, args)
}

// free tells whether nobody keeps the lock that every relay needs.
func (b *bench) free() bool {
	ctx, cancel := context.WithTimeout(b.Context(), time.Second)
	defer cancel()
	tx, err := b.db.BeginTx(ctx, nil)
	if err != nil {
		return false
	}
	defer tx.Rollback()
	_, err = tx.ExecContext(ctx, "update outbox_cursor set shard = shard")
	return err == nil
}

// texts returns the one column that a query gives.
func (b *bench) texts(query string) (all []string) {
	b.Helper()
	rows, err := b.db.QueryContext(b.Context(), query)
	if err != nil {
		b.Fatalf("%s: %v", query, err)
	}
	defer rows.Close()
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			b.Fatalf("%s: %v", query, err)
		}
		all = append(all, s)
	}
	if err := rows.Err(); err != nil {
		b.Fatalf("%s: %v", query, err)
	}
	return all
}

// committed returns the ids of all events whose transactions have committed, as their business rows have it.
func (b *bench) committed() []string {
	b.Helper()
	return b.texts("select id from business")
}

// wreck is what a dead relay left in the tables.
type wreck struct {
	owner                string
	position, inFlightTo int64
	gaps                 [][2]int64
	rows                 map[int64]wreckedRow
}

type wreckedRow struct {
	status relay.Status
	code   string
}

// bury waits until a relay has killed itself, looks at what it has left, and lets its lease expire at once.
func (b *bench) bury(p *process) wreck {
	b.Helper()
	p.killed()
	w := b.wreck(p.args.Name)
	if _, err := b.db.ExecContext(b.Context(), "update outbox_cursor set lease_expires_at = "+b.pastSQL); err != nil {
		b.Fatal(err)
	}
	return w
}

// wreck looks at what a relay that is dead has left.
func (b *bench) wreck(owner string) wreck {
	b.Helper()
	w := wreck{owner: owner, rows: map[int64]wreckedRow{}}
	var gaps string
	err := b.db.QueryRowContext(b.Context(), "select position, in_flight_to, "+b.gapsSQL+" from outbox_cursor").Scan(
		&w.position, &w.inFlightTo, &gaps)
	if err != nil {
		b.Fatal(err)
	}
	if err := json.Unmarshal([]byte(gaps), &w.gaps); err != nil {
		b.Fatalf("gaps %q: %v", gaps, err)
	}
	rows, err := b.db.QueryContext(b.Context(), "select seq, status, coalesce(last_error_code, '') from outbox_delivery")
	if err != nil {
		b.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var seq int64
		var row wreckedRow
		if err := rows.Scan(&seq, &row.status, &row.code); err != nil {
			b.Fatal(err)
		}
		w.rows[seq] = row
	}
	if err := rows.Err(); err != nil {
		b.Fatal(err)
	}
	return w
}

// mayRepeat tells whether an event was in flight, as far as the tables know.
func (w wreck) mayRepeat(seq int64) bool {
	switch row, found := w.rows[seq]; {
	case found: // it was, or a relay before had it in flight and it is not tried again yet
		return row.status == relay.StatusPublishing || row.code == relay.CodeTakeover
	case seq > w.position:
		return seq <= w.inFlightTo
	}
	for _, g := range w.gaps {
		if seq >= g[0] && seq <= g[1] {
			return true
		}
	}
	return false
}
