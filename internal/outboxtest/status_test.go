package outboxtest

import (
	"database/sql"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pillarbox-dev/pillarbox/internal/pgtest"
	"github.com/pillarbox-dev/pillarbox/outbox"
	"github.com/pillarbox-dev/pillarbox/relay"
)

// TestStatusView sets cursors and ledger rows as a relay would leave them, and looks at them through outbox_status.
func TestStatusView(t *testing.T) {
	t.Run("PostgreSQL", func(t *testing.T) {
		b := viewedPostgres(t)
		// 3 committed late: the position has passed it, and it is visible now. 5 is in the gap too, but settled since.
		testStatusView(t, b, statusSQL{
			in:   func(minutes int) string { return fmt.Sprintf("now() + interval '%d minutes'", minutes) },
			list: func(items ...string) string { return "'{" + strings.Join(items, ",") + "}'" },
			gaps: "'{[3,4),[5,6)}'",
			show: `to_char(%s at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')`,
		}, "3 PENDING")
	})
	t.Run("SQLite", func(t *testing.T) {
		b := onSQLite(t)
		testStatusView(t, b, statusSQL{
			in:   func(minutes int) string { return fmt.Sprintf("(unixepoch() + %d * 60) * 1000000", minutes) },
			list: func(items ...string) string { return `'["` + strings.Join(items, `","`) + `"]'` },
			gaps: "'[]'",
			show: "%s",
		}) // without a row in the ledger, 3 is none of this destination's
	})
}

// viewedPostgres has the odd schema in the search path, so that both databases can be asked the same.
func viewedPostgres(t testing.TB) backend {
	t.Helper()
	url := pgtest.Database(t)
	b := onPostgres(t, url)
	var database string
	query(t, b.db, &database, "select current_database()")
	run(t, b.db, fmt.Sprintf(`alter database %s set search_path to "%s"`, database, strings.ReplaceAll(oddSchema, `"`, `""`)))
	b.db = openPostgres(t, url) // new connections
	return b
}

// statusSQL is what the two databases write differently.
type statusSQL struct {
	in   func(minutes int) string     // a time from now
	list func(items ...string) string // topics
	gaps string                       // 3 and 5, where there are gaps
	show string                       // a time as ISO text
}

func testStatusView(t *testing.T, b backend, d statusSQL, late ...string) {
	t.Helper()
	tx := beginSQL(t, b.db)
	for i := 1; i <= 10; i++ {
		e := event(fmt.Sprint("e", i))
		if i == 10 {
			e.Topic = "other"
		}
		enqueue(t, b, tx, e)
	}
	must(t, tx.Commit())

	run(t, b.db,
		`insert into outbox_cursor (destination, position, gaps, in_flight_to, topics, lease_owner, lease_expires_at, updated_at)
		values
		('kafka', 6, `+d.gaps+`, 8, `+d.list("orders", "none*")+`, 'relay-1', `+d.in(1)+`, `+d.in(-2)+`)`)
	run(t, b.db, `insert into outbox_cursor (destination, position, in_flight_to, lease_owner, lease_expires_at) values
		('expired', 0, 5, 'relay-1', `+d.in(-1)+`), ('edge', 7, 9, 'relay-1', `+d.in(1)+`),
		('released', 8, 10, null, null), ('late', 9, 0, null, null)`)
	run(t, b.db, `insert into outbox_delivery
		(destination, seq, status, attempt_count, published_at, next_attempt_at, last_attempt_at, locked_by, locked_at, receipt,
		 last_error_code, last_error_message) values
		('kafka', 1, 'PUBLISHED', 1, `+d.in(5)+`, null, null, null, null, '3@17', null, null),
		('kafka', 2, 'FAILED', 4, null, `+d.in(7)+`, `+d.in(6)+`, null, null, null, 'HTTP_500', 'try later'),
		('kafka', 4, 'QUARANTINED', 1, null, null, `+d.in(6)+`, null, null, null, 'HTTP_422', 'no such field'),
		('kafka', 5, 'DISCARDED', 1, null, null, null, null, null, null, null, null),
		('kafka', 6, 'PENDING', 0, null, null, null, null, null, null, null, null),
		('kafka', 8, 'PUBLISHING', 0, null, null, null, 'relay-0', `+d.in(3)+`, null, null, null)`)

	want := append([]string{"1 PUBLISHED", "2 FAILED", "4 QUARANTINED", "5 DISCARDED", "6 PENDING", "7 PUBLISHING",
		"8 PUBLISHING", "9 PENDING"}, late...)
	slices.Sort(want)
	if got := statuses(t, b.db, "kafka"); !slices.Equal(got, want) {
		t.Errorf("kafka: got %v, want %v", got, want)
	}
	for destination, want := range map[string][]string{
		"expired": {"1 PENDING", "10 PENDING", "2 PENDING", "3 PENDING", "4 PENDING", "5 PENDING", "6 PENDING", "7 PENDING",
			"8 PENDING", "9 PENDING"},
		"edge":     {"10 PENDING", "8 PUBLISHING", "9 PUBLISHING"},
		"released": {"10 PENDING", "9 PENDING"},
		"late":     {"10 PENDING"},
		"unknown":  nil,
	} {
		if got := statuses(t, b.db, destination); !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", destination, got, want)
		}
	}

	// Who holds it, since when, and what was last heard of it.
	show := func(column string) string {
		return "coalesce(" + fmt.Sprintf(d.show, column) + ", 'null')"
	}
	for _, c := range []struct{ seq, columns, want string }{
		{"7", "locked_by || ' ' || " + show("locked_at"), `^relay-1 \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$`},
		{"8", "locked_by || ' ' || " + show("locked_at"), `^relay-0 \d{4}-`},
		{"9", "coalesce(locked_by, 'null') || ' ' || " + show("locked_at"), `^null null$`},
		{"1", "receipt || ' ' || attempt_count || ' ' || " + show("published_at") + " || ' ' || " + show("next_attempt_at"),
			`^3@17 1 \d{4}-\S*Z null$`},
		{"2", "attempt_count || ' ' || last_error_code || ' ' || last_error_message || ' ' || " + show("next_attempt_at"),
			`^4 HTTP_500 try later \d{4}-\S*Z$`},
		{"4", "event_id || ' ' || topic_name || ' ' || event_type || ' ' || outbox_id || ' ' || payload || ' ' || headers",
			`^e4 orders Placed 4 \{\} \{\}$`},
		{"1", "case when updated_at = published_at and updated_at > created_at then 'newest' end", `^newest$`},
		{"9", "case when updated_at = created_at then 'created' end", `^created$`},
	} {
		var got string
		query(t, b.db, &got, "select "+c.columns+" from outbox_status where destination = 'kafka' and seq = "+c.seq)
		if !regexp.MustCompile(c.want).MatchString(got) {
			t.Errorf("event %s, %s: got %q, want %s", c.seq, c.columns, got, c.want)
		}
	}
}

func statuses(t testing.TB, db *sql.DB, destination string) []string {
	t.Helper()
	all := list(t, db, "select seq || ' ' || status from outbox_status where destination = '"+destination+"'")
	slices.Sort(all)
	return all
}

// TestStatusViewMatchesTopics: the view understands patterns as the relay does.
func TestStatusViewMatchesTopics(t *testing.T) {
	patterns := []string{"*", "a*", "*a", "a*b*c", "a_b", "a%b", "a?b", "[ab]", "[a*", `a\b`, `a\*`, "A", "ü*", "**", "x]", "^a",
		"a'b", `a"b`}
	topics := []string{"a", "b", "ab", "abc", "a.b.c", "a_b", "axb", "a%b", "a?b", "[ab]", "[abc", `a\b`, `a\`, `a\x`, "A",
		"übel", "x]", "^a", "a'b", `a"b`, "a*b"}
	want := []string{}
	for _, p := range patterns {
		for _, topic := range topics {
			if (relay.Topics{p}).Match(topic) {
				want = append(want, p+" ~ "+topic)
			}
		}
	}
	slices.Sort(want)
	for name, b := range map[string]backend{"PostgreSQL": viewedPostgres(t), "SQLite": onSQLite(t)} {
		t.Run(name, func(t *testing.T) {
			tx := beginSQL(t, b.db)
			for _, topic := range topics {
				enqueue(t, b, tx, outbox.Event{Topic: topic, Type: "T"})
			}
			must(t, tx.Commit())
			for _, p := range patterns {
				asList := "array[$1]" // inferred as text
				if name == "SQLite" {
					asList = "json_array($1)"
				}
				run(t, b.db, "insert into outbox_cursor (destination, topics) values ($1, "+asList+")", p)
			}
			got := list(t, b.db, "select destination || ' ~ ' || topic_name from outbox_status")
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Errorf("got  %q\nwant %q", got, want)
			}
		})
	}
}

// TestStatusViewIsIndexed: what operators ask for is found without reading the log or the ledger from end to end.
func TestStatusViewIsIndexed(t *testing.T) {
	for name, b := range map[string]backend{"PostgreSQL": viewedPostgres(t), "SQLite": onSQLite(t)} {
		t.Run(name, func(t *testing.T) {
			tx := beginSQL(t, b.db)
			enqueue(t, b, tx, slices.Repeat([]outbox.Event{event("")}, 10_000)...)
			must(t, tx.Commit())
			run(t, b.db, "insert into outbox_cursor (destination, position) values ('a', 10000), ('b', 10000)")
			run(t, b.db, `insert into outbox_delivery (destination, seq, status)
				select destination, seq, case when seq % 1000 = 7 then 'QUARANTINED' else 'PUBLISHED' end from outbox_event, outbox_cursor`)
			run(t, b.db, "analyze") //nolint:misspell // SQL
			explain, endToEnd := "explain ", regexp.MustCompile(`Seq Scan on outbox_(event|delivery)`)
			if name == "SQLite" {
				explain, endToEnd = "explain query plan ", regexp.MustCompile(`SCAN (e|d|above)\b`)
			}
			for _, where := range []string{"event_id = 'x'", "seq = 5", "destination = 'a' and status = 'QUARANTINED'",
				"destination = 'a' and seq > 9990"} {
				plan := plan(t, b.db, explain+"select * from outbox_status where "+where)
				if endToEnd.MatchString(plan) || !strings.Contains(strings.ToLower(plan), "outbox_cursor") {
					t.Errorf("where %s:\n%s", where, plan)
				}
			}
			if control := plan(t, b.db, explain+"select * from outbox_status where payload is null"); !endToEnd.MatchString(control) {
				t.Errorf("this test would not see a scan in:\n%s", control)
			}
			if got := list(t, b.db,
				"select seq || '' from outbox_status where destination = 'a' and status = 'QUARANTINED'"); len(got) != 10 {
				t.Errorf("%d are quarantined, want 10", len(got))
			}
		})
	}
}

// plan returns the last column of all rows.
func plan(t testing.TB, db *sql.DB, query string) string {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), query)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	names, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for rows.Next() {
		values := make([]any, len(names))
		for i := range values {
			values[i] = new(any)
		}
		if err := rows.Scan(values...); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&all, *values[len(values)-1].(*any))
	}
	must(t, rows.Err())
	return all.String()
}
