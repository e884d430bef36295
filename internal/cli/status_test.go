package cli

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pillarbox-dev/pillarbox/internal/config"
	"github.com/pillarbox-dev/pillarbox/ops"
	"github.com/pillarbox-dev/pillarbox/store/sqlite"
)

// The state of each destination, before any relay and after one; and what an operator does to it.
func TestStatusPauseResume(t *testing.T) {
	path := filepath.Join(t.TempDir(), "box.db")
	file := writeFile(t, "pillarbox.yaml", fmt.Sprintf(`
database: {url: %q}
destinations:
  fresh: {http: {url: "https://fresh.example"}}
  suppliers: {topics: [orders], http: {url: "https://suppliers.example"}}
`, "sqlite://"+path))
	must(t, "migrate", "-c", file)
	wantTable(t, must(t, "status", "-c", file), `
DESTINATION  STATE        PENDING  FAILED  QUARANTINED  OLDEST  RATE  LAG  RELAY
fresh        not started        -       -            -       -     -    -  -
suppliers    not started        -       -            -       -     -    -  -
`)

	db, err := sqlite.OpenDB(t.Context(), sqlite.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	const now = "cast(unixepoch('subsec') * 1000000 as integer)"
	for _, statement := range []string{
		`with recursive n(i) as (select 1 union all select i + 1 from n where i < 25000)
		 insert into outbox_event (topic_name, event_type, created_at) select 'orders', 'T', ` + now + ` - 3725000000 from n`,
		`insert into outbox_cursor (destination, topics, position, lease_owner, lease_expires_at, failing_since, last_error_code)
		 values ('suppliers', '["orders"]', 1000, 'host-1', ` + now + ` + 60000000, ` + now + ` - 90000000, 'DIAL')`,
		`insert into outbox_cursor (destination, position) values ('gone', 25000)`,
		`with recursive n(i) as (select 1 union all select i + 1 from n where i < 1000)
		 insert into outbox_delivery (destination, seq, status) select 'suppliers', i, 'QUARANTINED' from n`,
	} {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	wantTable(t, must(t, "status", "-c", file), `
DESTINATION  STATE           PENDING  FAILED  QUARANTINED  OLDEST   RATE     LAG  RELAY
fresh        not started           -       -            -       -      -       -  -
gone         not configured        0       0            0       -  0.0/s       0  -
suppliers    failing         ~24,000       0        1,000   1h02m  0.0/s  24,000  host-1

suppliers has been failing for 1m30s, the last time with DIAL
`)

	if out := must(t, "pause", "suppliers", "-c", file, "--by", "ann", "--reason", "their release"); out != "suppliers is paused\n" {
		t.Errorf("pause printed %q", out)
	}
	text := must(t, "status", "-c", file, "--json")
	if !json.Valid([]byte(text)) {
		t.Errorf("status --json is no JSON:\n%s", text)
	}
	for _, want := range []string{
		`"state": "paused"`, `"paused_by": "ann"`, `"paused_reason": "their release"`, `"state": "not started"`, `"last_seq": 25000`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("status --json lacks %s:\n%s", want, text)
		}
	}
	if out := must(t, "resume", "suppliers", "-c", file); out != "suppliers goes on\n" {
		t.Errorf("resume printed %q", out)
	}
	code, _, errOut := runCLI("resume", "suppliers", "-c", file)
	if code != exitFailed || errOut != "pillarbox: resume suppliers: it is not paused\n" {
		t.Errorf("a second resume: exit status %d, %q", code, errOut)
	}
	var by, who string
	if err := db.QueryRowContext(t.Context(), `select group_concat(operator), group_concat(action) from outbox_operator_action`).Scan(&by, &who); err != nil {
		t.Fatal(err)
	}
	if want := "ann," + osUser(); by != want || who != "pause,resume" {
		t.Errorf("recorded %s by %s, want pause,resume by %s", who, by, want)
	}
}

func wantTable(t *testing.T, got, want string) {
	t.Helper()
	if want = strings.TrimPrefix(want, "\n"); got != want {
		t.Errorf("printed:\n%s\nwant:\n%s", got, want)
	}
}

// Of a destination in several shards the one that lags and the one without a relay are seen.
func TestStatusOfShards(t *testing.T) {
	c := &config.Config{Destinations: map[string]config.Destination{"events": {Shards: 3}, "small": {}}}
	report := newStatusReport(c, ops.Status{Destinations: []ops.DestinationStatus{
		{Destination: "events", Lag: 24_000, LeaseOwner: "host-1, host-2", Shards: []ops.ShardStatus{
			{Shard: 0, Lag: 12, LeaseOwner: "host-2"}, {Shard: 1, Lag: 24_000}, {Shard: 2, LeaseOwner: "host-1", Paused: true},
		}},
		{Destination: "small", LeaseOwner: "host-1"},
	}})
	wantTable(t, report.String(), `
DESTINATION  STATE     PENDING  FAILED  QUARANTINED  OLDEST   RATE     LAG  RELAY
events       no relay        0       0            0       -  0.0/s  24,000  host-1, host-2
small        running         0       0            0       -  0.0/s       0  host-1

DESTINATION  SHARD   STATE        LAG  RELAY
events       0 of 3  running       12  host-2
events       1 of 3  no relay  24,000  -
events       2 of 3  paused         0  host-1
`)
}
