package ops

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/pillarbox-dev/pillarbox/internal/pgtest"
	"github.com/pillarbox-dev/pillarbox/outbox/schema"
	"github.com/pillarbox-dev/pillarbox/store/sqlite"
)

// planCase is a statement with what an operator may ask, and the most rows that one node of its plan may read.
type planCase struct {
	statement, args string
	rows            float64
}

const wantsNothing = `'[]', '[]', '[]', '', '', '', '', '', '', null, null`

func planCases() []planCase {
	return append(append(jobPlanCases(), watchPlanCases()...), []planCase{
		{"events_cursors", "'d', 5", 1},
		{"events_open", "'d', 'QUARANTINED', 0, 1000000, 64", 64},
		{"events_ledger", "'d', 0, 1000000, 64", 64},
		{"events_log", "0, 1000000, 64", 64},
		{"events_gaps", "'d', 0, 1000000", 1000},
		{"events_gap_rows", "'d', 100, 300, 64", 1000},
		{"deliveries", "'d', '[1,2,3,20000]', 'row', " + wantsNothing + ", 10", 4},
		{"deliveries", `'d', '[1,2,3,20000]', 'none', '["FAILED"]', '["a*"]', '["t","u"]', 'k', 'A', '1', 'T', 'C', 'e', 1, 2, 10`, 8},
		{"event", "5, ''", 1},
		{"event", "0, 'id-5'", 1},
		{"archived_event", "0, 'id-5'", 1},
		{"archived_deliveries", "5", 3},
		{"log", "1, 1000, 'ann', '', '', 50", 1000},
		{"log_of_event", "1, 1000000, '', '', '', 50, 5", 50},
		{"log_ends", "", 1},
		{"lock_event", "5", 1},
		{"lock_delivery", "'d', 5", 1},
		{"retry", "'d', 5", 1},
		{"discard", "'d', 5", 1},
		{"repair", "5, '{}', null, '{}'", 1},
	}...)
}

// TestPlansTouchLittle runs each statement beside 30,000 events, deliveries and lines of the log, before there are statistics and
// after. It must read no more rows than it has to, and through an index.
func TestPlansTouchLittle(t *testing.T) {
	db, err := sql.Open("pgx", pgtest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := schema.Migrate(t.Context(), db, schema.Postgres, "box"); err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	for _, statement := range []string{
		"set search_path to box",
		`insert into outbox_event (event_id, topic_name, event_type) select 'id-' || i, 't', 'T' from generate_series(1, 30000) i`,
		`insert into outbox_cursor (destination, position, gaps)
		 select 'd', 30000, range_agg(int8range(10 * i, 10 * i + 2)) from generate_series(1, 1000) i`,
		`insert into outbox_delivery (destination, seq, status, endpoint)
		 select 'd', i, case i % 3 when 0 then 'PUBLISHED' when 1 then 'QUARANTINED' else 'FAILED' end, ''
		   from generate_series(1, 30000) i where i % 10 > 1`,
		`insert into outbox_operator_action (operator, action, seq) select 'bob', 'retry', i from generate_series(1, 30000) i`,
		`insert into outbox_event_archive select * from outbox_event`,
		`insert into outbox_delivery_archive select * from outbox_delivery`,
		`insert into outbox_inbox (consumer, event_id, body_hash)
		 select case i % 2 when 0 then 'c' else 'other' end, 'id-' || i, '' from generate_series(1, 30000) i`,
		`insert into outbox_inbox_duplicate (consumer, event_id, times) select consumer, event_id, 2 from outbox_inbox`,
	} {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	for _, when := range []string{"without statistics", "with statistics"} {
		for _, direction := range []string{"asc", "desc"} {
			for _, c := range planCases() {
				t.Run(when+"/"+direction+"/"+c.statement, func(t *testing.T) { checkPostgresPlan(t, db, direction, c) })
			}
		}
		if _, err := db.ExecContext(t.Context(), "vacuum analyze"); err != nil {
			t.Fatal(err)
		}
	}
}

func checkPostgresPlan(t *testing.T, db *sql.DB, direction string, c planCase) {
	ctx := t.Context()
	var plan, text string
	if err := fill(schema.Postgres, "box", map[string]*string{"plan": &plan, c.statement: &text}); err != nil {
		t.Fatal(err)
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = tx.Rollback()
		_, _ = db.ExecContext(ctx, "deallocate asked") // there is one connection
	}()
	execute := "execute asked"
	if c.args != "" {
		execute += " (" + c.args + ")"
	}
	var found string
	for _, statement := range []string{plan, "prepare asked as " + direct(text, direction)} {
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.QueryRowContext(ctx, "explain (analyze, format json) "+execute).Scan(&found); err != nil {
		t.Fatal(err)
	}
	pgtest.CheckPlan(t, found, c.rows)
}

// TestSQLitePlans: no statement goes through a table or a whole destination, and none sorts what an index has in order.
func TestSQLitePlans(t *testing.T) {
	db, err := sqlite.OpenDB(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "box.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := schema.Migrate(t.Context(), db, schema.SQLite, ""); err != nil {
		t.Fatal(err)
	}
	bad := regexp.MustCompile(`SCAN (outbox_|[deca]\b)|PRIMARY KEY \(destination=\?\)$|TEMP B-TREE`)
	for _, direction := range []string{"asc", "desc"} {
		for _, c := range planCases() {
			if _, err := files.ReadFile("sqlite/" + c.statement + ".sql"); err != nil {
				continue // it is not needed there
			}
			for _, line := range sqlitePlan(t, db, direction, c.statement) {
				small := c.statement == "events_cursors" || c.statement == "reconcile_cursors" || // one row for each destination
					c.statement == "heartbeat_count" && strings.Contains(line, "TEMP B-TREE") || // of a chunk, by topic and type
					strings.HasPrefix(c.statement, "archived_deliveries") && strings.Contains(line, "TEMP B-TREE") || // the same
					c.statement == "inbox" && strings.Contains(line, "outbox_inbox_handled_at") || // its newest rows
					c.statement == "job_open" && strings.Contains(line, "TEMP B-TREE") || // two lists that are bounded
					c.statement == "deliveries" && strings.Contains(line, "TEMP B-TREE") // the numbers that were given
				if bad.MatchString(line) && !small {
					t.Errorf("%s %s: %s", c.statement, direction, line)
				}
			}
		}
	}
}

func sqlitePlan(t *testing.T, db *sql.DB, direction, statement string) (lines []string) {
	t.Helper()
	var text string
	if err := fill(schema.SQLite, "", map[string]*string{statement: &text}); err != nil {
		t.Fatal(err)
	}
	var args []any
	for i := 1; strings.Contains(text, fmt.Sprintf("?%d", i)) || strings.Contains(text, fmt.Sprintf("$%d", i)); i++ {
		args = append(args, nil)
	}
	rows, err := db.QueryContext(t.Context(), "explain query plan "+direct(text, direction), args...)
	if err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	defer rows.Close()
	for rows.Next() {
		var id, parent, unused int
		var line string
		if err := rows.Scan(&id, &parent, &unused, &line); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, line)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	if len(lines) == 0 {
		t.Fatalf("%s has no plan", statement)
	}
	return lines
}
