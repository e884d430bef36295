package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/ops"
	"github.com/pillarbox-dev/pillarbox/store/sqlite"
)

// quarantine makes an outbox with a poisoned event of a schema that its payload breaks, one that is published, and one that waits;
// it returns the configuration's file.
func quarantine(t *testing.T) (file string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "box.db")
	contracts := t.TempDir()
	if err := os.WriteFile(filepath.Join(contracts, "o.v1.json"), []byte(
		`{"type": "object", "properties": {"amount": {"type": "integer"}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	file = writeFile(t, "pillarbox.yaml", fmt.Sprintf(`
database: {url: %q}
contracts: {dir: %q}
destinations:
  suppliers: {http: {url: "https://suppliers.example"}}
`, "sqlite://"+path, contracts))
	must(t, "migrate", "-c", file)
	db, err := sqlite.OpenDB(t.Context(), sqlite.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	const day = "1767225600000000" // 2026-01-01
	for _, statement := range []string{
		`insert into outbox_event (event_id, topic_name, event_type, partition_key, schema_ref, payload, headers, created_at) values
		 ('id-1', 'orders', 'Created', 'CASE-1', 'o.v1', '{"amount":"12","n":1.10}', '{"tenant":"north"}', ` + day + `),
		 ('id-2', 'orders', 'Created', 'CASE-1', 'o.v1', '{}', '{}', ` + day + ` + 1000000),
		 ('id-3', 'bills', 'Paid', '` + "\u009b31m" + `', 'o.v1', null, '{}', ` + day + ` + 2000000)`,
		`update outbox_event set payload_bytes = x'00ff41' where seq = 3`,
		`insert into outbox_cursor (destination, position) values ('suppliers', 2)`,
		`insert into outbox_delivery (destination, seq, status, attempt_count, last_error_code, last_error_message, last_attempt_at,
			endpoint, published_at, receipt) values
		 ('suppliers', 1, 'QUARANTINED', 1, 'SCHEMA_INVALID', '/amount must be integer, and is string', ` + day + `, '', null, null),
		 ('suppliers', 2, 'PUBLISHED', 1, null, null, ` + day + `, null, ` + day + `, '200')`,
	} {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	return file
}

func TestEventsList(t *testing.T) {
	file := quarantine(t)
	wantTable(t, must(t, "events", "list", "-c", file), `
SEQ  DESTINATION  STATUS       ATTEMPTS  ERROR           CREATED               TOPIC   TYPE     KEY        EVENT
  3  suppliers    PENDING             0  -               2026-01-01T00:00:02Z  bills   Paid     \u009b31m  id-3
  2  suppliers    PUBLISHED           1  -               2026-01-01T00:00:01Z  orders  Created  CASE-1     id-2
  1  suppliers    QUARANTINED         1  SCHEMA_INVALID  2026-01-01T00:00:00Z  orders  Created  CASE-1     id-1
`)
	first := must(t, "events", "list", "-c", file, "--limit", "1", "--oldest-first")
	_, after, more := strings.Cut(first, "There may be more: the same with --after ")
	if !more || !strings.Contains(first, "id-1") {
		t.Fatalf("the first page is\n%s", first)
	}
	rest := must(t, "events", "list", "-c", file, "--oldest-first", "--after", strings.TrimSpace(after))
	if strings.Contains(rest, "id-1") || !strings.Contains(rest, "id-2") || !strings.Contains(rest, "id-3") {
		t.Errorf("the second page is\n%s", rest)
	}
	for _, tt := range []struct {
		args string
		want string // ids
	}{
		{"--status quarantined,PENDING", "id-3 id-1"},
		{"--destination suppliers --status PUBLISHED", "id-2"},
		{"--topic ord*", "id-2 id-1"},
		{"--key CASE-1 --since 2026-01-01T00:00:01Z", "id-2"},
		{"--until 2026-01-01T00:00:01Z", "id-1"},
		{"--type Paid", "id-3"},
		{"--code SCHEMA_INVALID", "id-1"},
		{"--from-seq 2 --to-seq 2", "id-2"},
		{"--since 1h", ""},
	} {
		var page ops.DeliveryPage
		text := must(t, append(strings.Fields("events list --json -c "+file), strings.Fields(tt.args)...)...)
		if err := json.Unmarshal([]byte(text), &page); err != nil {
			t.Fatalf("%s: %v", tt.args, err)
		}
		var ids []string
		for _, d := range page.Deliveries {
			ids = append(ids, d.EventID)
		}
		if got := strings.Join(ids, " "); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.args, got, tt.want)
		}
	}
	if out := must(t, "events", "list", "-c", file, "--key", "nobody"); out != "no deliveries fit\n" {
		t.Errorf("nothing fits: %q", out)
	}
}

func TestEventsShow(t *testing.T) {
	file := quarantine(t)
	wantTable(t, must(t, "events", "show", "1", "-c", file), `
event 1  id-1
  topic      orders
  key        CASE-1
  type       Created, version 1
  schema     o.v1
  created    2026-01-01T00:00:00Z

headers
  tenant: north

payload
  {
    "amount": "12",
    "n": 1.10
  }

deliveries
  DESTINATION  STATUS       ATTEMPTS  LAST ATTEMPT          NEXT ATTEMPT  PUBLISHED  RECEIPT  VERSION
  suppliers    QUARANTINED         1  2026-01-01T00:00:00Z  -             -          -        0.QUARANTINED.1.1767225600000000
  suppliers: SCHEMA_INVALID /amount must be integer, and is string
`)
	binary := must(t, "events", "show", "id-3", "-c", file)
	for _, want := range []string{"3 bytes that are not JSON", "00 ff 41", `\u009b31m`, "PENDING"} {
		if !strings.Contains(binary, want) {
			t.Errorf("it lacks %q:\n%s", want, binary)
		}
	}
	var e ops.EventDetail
	err := json.Unmarshal([]byte(must(t, "events", "show", "3", "--json", "-c", file)), &e)
	if err != nil || string(e.PayloadBytes) != "\x00\xffA" {
		t.Errorf("--json: %v, payload %q", err, e.PayloadBytes)
	}
}

// A poisoned event: found, repaired from standard input, and the log tells the story.
func TestRepairRetryDiscard(t *testing.T) {
	file := quarantine(t)
	var e ops.EventDetail
	if err := json.Unmarshal([]byte(must(t, "events", "show", "1", "--json", "-c", file)), &e); err != nil {
		t.Fatal(err)
	}
	seen := e.Deliveries[0].Version
	bad, good := writeFile(t, "bad.json", `{"amount":"13"}`), writeFile(t, "good.json", "{\"amount\":13}\n")
	code, _, errOut := runCLI("repair", "suppliers", "1", "--payload", bad, "-c", file)
	want := "pillarbox: repair event 1 to suppliers: SCHEMA_INVALID: breaks the contract o.v1: " +
		"/amount must be integer, and is string\n"
	if code != exitFailed || errOut != want {
		t.Errorf("a breach: exit status %d, %s, want %s", code, errOut, want)
	}
	out := must(t, "repair", "suppliers", "id-1", "--payload", good, "--header", "tenant=south", "--by", "ann",
		"--reason", "a number", "-c", file)
	if want := "event 1 to suppliers is PENDING: it is repaired and goes again\n"; out != want {
		t.Errorf("repair printed %q, want %q", out, want)
	}
	shown := must(t, "events", "show", "1", "-c", file)
	for _, want := range []string{`"amount": 13`, "tenant: south", "PENDING", "ann       repair  suppliers    1      a number"} {
		if !strings.Contains(shown, want) {
			t.Errorf("it lacks %q:\n%s", want, shown)
		}
	}
	code, _, errOut = runCLI("discard", "suppliers", "1", "--if-version", seen, "-c", file)
	if want := "pillarbox: discard event 1 to suppliers: it has changed since you looked: it is PENDING now, after 0 attempts: " +
		"look at it again\n"; code != exitFailed || errOut != want {
		t.Errorf("a conflict: exit status %d, %s, want %s", code, errOut, want)
	}
	must(t, "discard", "suppliers", "1", "--by", "bob", "--reason", "too late", "-c", file)

	log := must(t, "log", "-c", file)
	lines := strings.Split(log, "\n")
	if len(lines) != 4 || !strings.Contains(lines[1], "bob") || !strings.Contains(lines[1], "too late") || !strings.Contains(lines[2], "ann") {
		t.Errorf("the log is\n%s", log)
	}
	var page ops.LogPage
	err := json.Unmarshal([]byte(must(t, "log", "--operator", "ann", "--json", "-c", file)), &page)
	if err != nil || len(page.Entries) != 1 ||
		!strings.Contains(string(page.Entries[0].Before), `"12"`) || time.Since(page.Entries[0].At) > time.Hour {
		t.Errorf("the log of ann is %+v, %v", page, err)
	}
}

func TestEventCommandsRefuse(t *testing.T) {
	file := quarantine(t)
	for _, tt := range []struct {
		args, want string
		code       int
	}{
		{"retry suppliers 2", "retry event 2 to suppliers: it is PUBLISHED: to send it once more, replay it", exitFailed},
		{"retry suppliers 3", "the version is missing: look at the delivery first", exitFailed},
		{"retry others 1", `event 1 does not go to "others": it goes to suppliers`, exitFailed},
		{"retry suppliers 99", "show event 99: not found: it is neither in the log nor in the archive", exitFailed},
		{"retry suppliers", "takes a destination and the number or the id of an event, and there are 1 arguments", exitUsage},
		{"repair suppliers 1", "there is nothing to repair: give --payload", exitUsage},
		{"repair suppliers 1 --payload x --payload-bytes y --header tenant", `--header "tenant" has no =`, exitUsage},
		{"repair suppliers 1 --payload /no/such/file", "read the payload: open /no/such/file", exitFailed},
		{"events list --status quarantine", `there is no status "QUARANTINE": use PENDING`, exitFailed},
		{"events list --since yesterday", "it is no time: write it like 2026-05-04T10:00:00Z", exitUsage},
		{"events list --destination others", "no relay has worked on this destination yet", exitFailed},
		{"events list --limit 0", "--limit must be a number from 1 to 100000, and is 0", exitUsage},
		{"events list --after here", "start from the first page", exitFailed},
		{"events lst", `unknown command "lst"`, exitUsage},
		{"log --seq -1", "-1 is none", exitFailed},
	} {
		code, out, errOut := runCLI(append(strings.Fields(tt.args), "-c", file)...)
		if code != tt.code || out != "" || !strings.Contains(errOut, tt.want) {
			t.Errorf("%s: exit status %d, %q, %q, want %d and %q", tt.args, code, out, errOut, tt.code, tt.want)
		}
	}
}
