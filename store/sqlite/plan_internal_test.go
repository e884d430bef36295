package sqlite

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/pillarbox-dev/pillarbox/outbox/schema"
	"github.com/pillarbox-dev/pillarbox/relay"
)

// No statement goes through a table or a whole destination, and none sorts what an index has in order.
func TestPlans(t *testing.T) {
	db, err := OpenDB(t.Context(), Config{Path: filepath.Join(t.TempDir(), "shop.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := schema.Migrate(t.Context(), db, schema.SQLite, ""); err != nil {
		t.Fatal(err)
	}
	slow := regexp.MustCompile(`(?m)^SCAN (outbox_|[delo]\b).*|.* PRIMARY KEY \(destination=\?\)$|.*TEMP B-TREE.*`)
	topics := wanted(relay.Topics{"a", "b*"})
	for _, test := range []struct{ name, query, want string }{
		{"read above", fmt.Sprintf(readAboveSQL, ""), "l USING INTEGER PRIMARY KEY (rowid>?)"},
		{"read above, with topics", fmt.Sprintf(readAboveSQL, topics), "l USING INTEGER PRIMARY KEY (rowid>?)"},
		{"read a gap", fmt.Sprintf(readGapSQL, topics), "l USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"},
		{"new cursor", newCursorSQL, ""},
		{"cursor", cursorSQL, "outbox_cursor_1 (destination=? AND shard=?)"},
		{"take lease", takeLeaseSQL, "outbox_cursor_1 (destination=? AND shard=?)"},
		{"renew", renewSQL, "outbox_cursor_1 (destination=? AND shard=?)"},
		{"release", releaseSQL, "outbox_cursor_1 (destination=? AND shard=?)"},
		{"fence", fenceSQL, "outbox_cursor_1 (destination=? AND shard=?)"},
		{"settle", settleCursorSQL, "outbox_cursor_1 (destination=? AND shard=?)"},
		{"publish", publishSQL(publishChunk), ""},
		{"put a row", rowSQL, ""},
		{"publishing", publishingSQL, "COVERING INDEX outbox_delivery_open (destination=? AND status=?)"},
		{"take over", takeOverSQL, "outbox_delivery_open (destination=? AND status=?)"},
		{"above", aboveSQL, "PRIMARY KEY (destination=? AND seq>?)"},
		{"lanes, blocked", blockedLanesSQL, "outbox_delivery_open (destination=? AND status=?)"},
		{"endpoints", endpointsSQL, "outbox_delivery_parked (destination=? AND endpoint>?)"},
		{"next due", nextDueSQL, "COVERING INDEX outbox_delivery_due (destination=? AND next_attempt_at>?)"},
		{"due", dueSQL, "outbox_delivery_due (destination=? AND next_attempt_at>? AND next_attempt_at<?)"},
		{"parked", parkedSQL, "outbox_delivery_parked (destination=? AND endpoint=? AND seq>?)"},
		{"lane", laneSQL, "outbox_delivery_lane (destination=? AND endpoint=? AND partition_key=?)"},
		{"any due", anyDueSQL, "outbox_delivery_lane (destination=? AND endpoint=? AND partition_key=? AND seq<?)"},
		{"event", eventSQL, "INTEGER PRIMARY KEY (rowid=?)"},
		{"lock", lockSQL, "PRIMARY KEY (destination=? AND seq=?)"},
		{"pass", passSQL, "PRIMARY KEY (destination=? AND seq=?)"},
		{"missing", missingSQL, "PRIMARY KEY (destination=? AND seq=?)"},
	} {
		got := plan(t, db, test.query)
		if bad := slow.FindString(got); bad != "" && test.query != blockedLanesSQL { // whose lanes are put in order to be told apart
			t.Errorf("%s: %s, in the plan\n%s", test.name, bad, got)
		}
		if !strings.Contains(got, test.want) {
			t.Errorf("%s: no %s in the plan\n%s", test.name, test.want, got)
		}
	}
}

func plan(t *testing.T, db *sql.DB, query string) string {
	t.Helper()
	args := make([]any, strings.Count(query, "?"))
	rows, err := db.QueryContext(t.Context(), "explain query plan "+query, args...)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	defer rows.Close()
	var lines []string
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
	return strings.Join(lines, "\n")
}
