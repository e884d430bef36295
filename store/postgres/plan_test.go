package postgres_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pillarbox-dev/pillarbox/internal/pgtest"
	"github.com/pillarbox-dev/pillarbox/relay"
	"github.com/pillarbox-dev/pillarbox/store/postgres"
)

// TestPlansTouchLittle runs each statement on a ledger of 50,000 rows, of which 40,000 are open; half of them before the
// tables have statistics, half after. It must read no more rows than it has to, and through an index.
func TestPlansTouchLittle(t *testing.T) {
	ctx := context.Background()
	url := database(t)
	store := open(t, postgres.Config{URL: url})
	lease, _, err := store.Acquire(ctx, relay.AcquireRequest{Destination: "d", Owner: "o", TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	conn := connect(t, url)
	exec(t, conn, "insert into outbox_event (topic_name, event_type) select 'reg.t', 'T' from generate_series(1, 50000) i")
	// 8,000 lanes at 20 endpoints; the head of each has failed and is due, four rows wait behind it.
	exec(t, conn, `insert into outbox_delivery (destination, seq, status, endpoint, partition_key, next_attempt_at)
		select 'd', i, case when i <= 8000 then 'FAILED' else 'PENDING' end, 'e' || i % 20, 'k' || i % 8000,
		       case when i <= 8000 then now() - interval '1 minute' end from generate_series(1, 40000) i`)
	exec(t, conn, `insert into outbox_delivery (destination, seq, status, published_at)
		select 'd', i, 'PUBLISHED', now() from generate_series(40001, 50000) i`)
	exec(t, conn, postgres.Settings)

	fence := fmt.Sprintf("'d', %d, 'o'", lease.Epoch)
	for _, test := range []struct {
		statement, args string
		rows            float64 // the most that one node of the plan may return in all its loops
		ofShard         float64 // the same for one of three shards, which passes over the rows of the others
	}{
		{"read", "20000, 500", 501, 501},
		{"read some topics", "20000, 500, '{reg.%}'", 501, 501},
		{"read gaps", "20000, 500, '{1,7}', '{5,7}'", 508, 508},
		{"read gaps of some topics", "20000, 500, '{reg.%}', '{1,100}', '{5,20000}'", 1001, 1001},
		{"settle by place", fence + ", 1000000, 1, '{}', 1, 0, false, '', '', '', '(0,2)', 0", 1, 1},
		{"claim due", fence + ", 0, 101, 100, '{}', 1000000, '-infinity', -1", 102, 500},
		{"claim a lane", fence + ", 0, 101, 100, '{}', 1000000, 'e1', 'k1'", 6, 6},
		{"claim parked of an endpoint", fence + ", 0, 101, 100, '{}', 1000000, 'e1', 0", 102, 500},
		{"take what is gone", fence + ", '{7,9,45000}'", 3, 3},
		{"take over", "'d', 100", 1, 1},
		// All lanes that something blocks are looked at once, for a takeover; the endpoints are probed one by one.
		{"list what is open", "'d', 49900, 100", 16_000, 16_000},
	} {
		for shard, rows := range map[relay.Shard]float64{{}: test.rows, {Number: 0, Of: 3}: test.ofShard} {
			t.Run(fmt.Sprint(test.statement, " of ", shard), func(t *testing.T) {
				exec(t, conn, "prepare statement as "+store.Texts(shard)[test.statement])
				defer exec(t, conn, "deallocate statement")
				checkPlan(t, conn, test.args, rows)
			})
		}
		if test.statement == "read gaps of some topics" {
			exec(t, conn, "vacuum analyze")
		}
	}
}

// checkPlan runs the prepared statement, undoes what it does, and looks at its plan.
func checkPlan(t *testing.T, conn *pgx.Conn, args string, rows float64) {
	t.Helper()
	ctx := context.Background()
	tx, err := conn.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(ctx)
	var text string
	explain := "explain (analyze, format json) execute statement (" + args + ")"
	err = tx.QueryRow(ctx, explain, pgx.QueryExecModeSimpleProtocol).Scan(&text)
	if err != nil {
		t.Fatal(err)
	}
	pgtest.CheckPlan(t, text, rows)
}
