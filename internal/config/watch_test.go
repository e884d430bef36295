package config

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/ops"
)

const watched = `
database: {url: "sqlite:///a.db"}
destinations:
  events: {kafka: {brokers: ["k:9092"]}}
  quiet: {ledger: false, kafka: {brokers: ["k:9092"]}}
reconcile:
  every: 10m
  queries:
    - name: hubs
      hint: write it
      sql: |
        select id from hub
         where state = '${not a variable}'
  inbox: [{destination: events, consumer: billing, after: 5m, keeps: 30d, database: {url: "postgres://b@h/b", schema: inbox}}]
heartbeats:
  - {name: daily, every: 24h, topic: beats, topics: ["orders.*"], payload: "{id: .event_id, n: .count, types: .by_type, from: .interval_start}"}
  - {name: plain, every: 1m, topic: beats}
`

func TestReconcileAndHeartbeats(t *testing.T) {
	c, err := Parse("f", []byte(watched), noVariables)
	if err != nil {
		t.Fatal(err)
	}
	r := c.Reconcile.Config(c.Destinations)
	if len(r.Ledgers) != 1 || r.Ledgers[0] != "events" || r.Since != 24*time.Hour {
		t.Errorf("ledgers, since = %v, %v, want events alone, a day", r.Ledgers, r.Since)
	}
	if q := r.Queries[0]; q.Name != "hubs" || q.Hint != "write it" || !strings.Contains(q.SQL, "'${not a variable}'") {
		t.Errorf("query = %+v, want it as it stands", q)
	}
	if i := r.Inboxes[0]; i.Consumer != "billing" || i.Schema != "inbox" || i.After != 5*time.Minute || i.Keeps != 30*24*time.Hour {
		t.Errorf("inbox = %+v", i)
	}
	beat, err := c.Heartbeats[0].Ops()
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	got, err := beat.Payload(ops.HeartbeatCounts{EventID: "e", Count: 3, ByType: map[string]int64{"Accepted": 3}, IntervalStart: at})
	if want := `{"from":"2026-01-02T00:00:00Z","id":"e","n":3,"types":{"Accepted":3}}`; err != nil || string(got) != want {
		t.Errorf("payload = %s, %v, want %s", got, err, want)
	}
	if plain, err := c.Heartbeats[1].Ops(); err != nil || plain.Payload != nil {
		t.Errorf("a heartbeat without an expression: payload %v, %v", plain.Payload != nil, err)
	}
}

func TestHeartbeatPayloadRefuses(t *testing.T) {
	for expression, want := range map[string]string{
		"empty":              "gives no result",
		".count, .count":     "more than one result",
		`error("not today")`: "the expression fails: error: not today",
		"[limit(1; repeat(1))] | while(true; .) | empty": "the expression fails",
	} {
		beat, err := Heartbeat{Payload: Verbatim(expression)}.Ops()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := beat.Payload(ops.HeartbeatCounts{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %s, %v, want an error with %q", expression, got, err, want)
		}
	}
}

func TestWatchProblems(t *testing.T) {
	_, err := Parse("f", []byte(`
database: {url: "sqlite:///a.db"}
destinations:
  events: {kafka: {brokers: ["k:9092"]}}
  quiet: {ledger: false, kafka: {brokers: ["k:9092"]}}
reconcile:
  queries: [{name: ledger, sql: "select 1"}, {name: a, sql: ";"}, {sql: "select 1"}]
  inbox:
    - {destination: event, consumer: c, database: {url: "postgres://b@h/b"}}
    - {destination: quiet, consumer: c, database: {url: "postgres://b@h/b"}}
    - {destination: events, consumer: c, keeps: 5m, database: {url: "sqlite:///b.db", schema: s}}
heartbeats:
  - {name: Daily, every: 10ms, topic: t, payload: "{"}
  - {name: h, every: 1h, topic: t}
  - {name: h, every: 1h, topic: t}
  - {name: i, every: 1h}
`), noVariables)
	if err == nil {
		t.Fatal("it was taken")
	}
	for _, want := range []string{
		`reconcile.queries[2].name is missing`, `query "ledger": the name is taken`, `query "a" has no SQL`,
		`inbox[0]: there is no destination "event": did you mean "events"?`, `inbox[1]: the destination quiet keeps no ledger`,
		`inbox[2]: keeps is not longer`, `inbox[2].database.schema is for PostgreSQL alone`, `heartbeats[0]: name "Daily"`,
		`heartbeats[0]: every 10ms`, `heartbeats[0]: payload: unexpected EOF`, `heartbeats[2]: the name h is taken`, `heartbeats[3].topic is missing`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("problems:\n%v\nwant %q among them", err, want)
		}
	}
}

// The examples of the documents are configurations, and their expressions do what the text says.
func TestWatchingExamples(t *testing.T) {
	text, err := os.ReadFile("../../docs/watching.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(text), "```yaml\n")[1:]
	if len(blocks) < 2 {
		t.Fatalf("%d examples, want 2", len(blocks))
	}
	whole := "database: {url: \"postgres://a@h/b\"}\ndestinations: {events: {kafka: {brokers: [\"k:9092\"]}}}\n"
	for _, block := range blocks {
		example, _, _ := strings.Cut(block, "```")
		whole += example
	}
	c, err := Parse("watching.md", []byte(whole), noVariables)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Reconcile.Queries) != 1 || len(c.Reconcile.Inboxes) != 1 || len(c.Heartbeats) != 1 {
		t.Errorf("the examples give %+v and %+v", c.Reconcile, c.Heartbeats)
	}
	beat, err := c.Heartbeats[0].Ops()
	if err != nil {
		t.Fatal(err)
	}
	counts := ops.HeartbeatCounts{IntervalStart: time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC), ByType: map[string]int64{}}
	got, err := beat.Payload(counts)
	if want := `{"accepted":0,"date":"2026-01-02","status":"NOTHING_TO_REPORT"}`; err != nil || string(got) != want {
		t.Errorf("payload = %s, %v, want %s", got, err, want)
	}
}
