package cli

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/pillarbox-dev/pillarbox/internal/pgtest"
	"github.com/pillarbox-dev/pillarbox/outbox"
	"github.com/pillarbox-dev/pillarbox/outbox/webhook"
	"github.com/pillarbox-dev/pillarbox/store/sqlite"
)

// rig is a database with a producer, and a receiver that keeps what arrived.
type rig struct {
	t        *testing.T
	url      string
	schema   string // of PostgreSQL
	db       *sql.DB
	box      *outbox.Outbox
	receiver *receiver
}

// onBoth runs a test on PostgreSQL, in a schema of its own, and on SQLite.
func onBoth(t *testing.T, test func(r *rig)) {
	t.Run("postgres", func(t *testing.T) {
		r := &rig{t: t, url: pgtest.Database(t), schema: "integration", receiver: newReceiver(t)}
		db, err := sql.Open("pgx", r.url)
		r.open(db, err, outbox.Postgres)
		test(r)
	})
	t.Run("sqlite", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "box.db")
		r := &rig{t: t, url: "sqlite://" + path, receiver: newReceiver(t)}
		db, err := sqlite.OpenDB(t.Context(), sqlite.Config{Path: path})
		r.open(db, err, outbox.SQLite)
		test(r)
	})
}

func (r *rig) open(db *sql.DB, err error, dialect outbox.Dialect) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
	r.db = db
	r.t.Cleanup(func() { db.Close() })
	if r.box, err = outbox.New(dialect, outbox.Options{Schema: r.schema}); err != nil {
		r.t.Fatal(err)
	}
	must(r.t, "migrate", "-c", r.config(""))
}

// config writes a configuration whose destination is the receiver; more is added to the destination.
func (r *rig) config(more string) string {
	r.t.Helper()
	schema := ""
	if r.schema != "" {
		schema = ", schema: " + r.schema
	}
	return writeFile(r.t, "pillarbox.yaml", fmt.Sprintf(`
database: {url: %q%s}
listen: 127.0.0.1:0
log: {format: json}
relay: {lease: 2s}
destinations:
  receiver:
    timeout: 1s
    http:
      url: %s/hook
      signature: {scheme: sha256-hex, secret_file: %s}
      allow_addresses: [127.0.0.1]
%s`, r.url, schema, r.receiver.URL, r.receiver.secretFile, more))
}

// table names one of the outbox's.
func (r *rig) table(name string) string {
	if r.schema != "" {
		return r.schema + "." + name
	}
	return name
}

// enqueue commits one transaction with events, or rolls it back, and returns their ids.
func (r *rig) enqueue(commit bool, events ...outbox.Event) []string {
	r.t.Helper()
	tx, err := r.db.BeginTx(context.Background(), nil)
	if err != nil {
		r.t.Fatal(err)
	}
	defer tx.Rollback()
	results, err := r.box.Enqueue(context.Background(), tx, events...)
	if err != nil {
		r.t.Fatal(err)
	}
	if commit {
		if err := tx.Commit(); err != nil {
			r.t.Fatal(err)
		}
	}
	ids := make([]string, len(results))
	for i := range results {
		ids[i] = results[i].ID
	}
	return ids
}

// receiver answers yes to what is signed, and keeps in which order it arrived.
type receiver struct {
	*httptest.Server
	secretFile string

	mu       sync.Mutex
	arrivals []arrival
	status   int           // what is answered
	takes    time.Duration // and after how long
}

type arrival struct {
	id, body string
	at       time.Time
}

const secret = "It's a Secret to Everybody"

func newReceiver(t *testing.T) *receiver {
	r := &receiver{secretFile: writeFile(t, "secret", secret), status: http.StatusNoContent, takes: 3 * time.Millisecond}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return
	}
	if err := webhook.VerifyHex([][]byte{[]byte(secret)}, body, req.Header.Get("Pillarbox-Signature")); err != nil {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	r.mu.Lock()
	r.arrivals = append(r.arrivals, arrival{req.Header.Get("Idempotency-Key"), string(body), time.Now()})
	status, takes := r.status, r.takes
	r.mu.Unlock()
	time.Sleep(takes)
	w.WriteHeader(status)
}

func (r *receiver) answers(status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status = status
}

func (r *receiver) arrived() []arrival {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.arrivals)
}

// distinct counts the events that arrived.
func (r *receiver) distinct() int {
	ids := map[string]bool{}
	for _, a := range r.arrived() {
		ids[a.id] = true
	}
	return len(ids)
}

// ---- Two relays, one of which is killed ------------------------------------------------------------------------------

// Every committed event arrives, in the order of its key, none that was rolled back, and twice only what was in flight at the kill.
func TestRunWithTwoRelaysAndAKill(t *testing.T) {
	onBoth(t, func(r *rig) {
		file := r.config("")
		relays := []*program{start(r.t, "run", "-c", file), start(r.t, "run", "-c", file)}
		for _, relay := range relays {
			relay.address()
		}
		p := &producer{rig: r, committed: map[string]bool{}, rolledBack: map[string]bool{}, keys: map[string][]string{}}
		p.produce(150)
		within(r.t, 30*time.Second, "the first events", func() bool { return r.receiver.distinct() > 50 })
		producing := make(chan struct{})
		go func() { defer close(producing); p.produce(600) }()
		time.Sleep(300 * time.Millisecond)

		owner := r.owner()
		victim := slices.IndexFunc(relays, func(p *program) bool { return strings.Contains(owner, fmt.Sprintf("-%d-", p.cmd.Process.Pid)) })
		if victim < 0 {
			r.t.Fatalf("the lease is with %q, none of the relays", owner)
		}
		relays[victim].kill()
		killed := time.Now()
		inFlight := r.inFlight()
		<-producing
		within(r.t, 60*time.Second, "every committed event", func() bool { return r.receiver.distinct() >= len(p.committed) })
		survivor := relays[1-victim]
		if got := r.owner(); !strings.Contains(got, fmt.Sprintf("-%d-", survivor.cmd.Process.Pid)) {
			r.t.Errorf("the lease is with %q, want the survivor", got)
		}
		if code := survivor.stop(); code != 0 {
			r.t.Errorf("the survivor ended with %d, want 0", code)
		}
		p.judge(r.receiver.arrived(), inFlight, killed)
		if got := r.owner(); got != "" {
			r.t.Errorf("the lease is with %q after a clean stop, want nobody", got)
		}
	})
}

// owner is who has the lease.
func (r *rig) owner() (owner string) {
	r.t.Helper()
	query := `select coalesce(lease_owner, '') from ` + r.table("outbox_cursor")
	if err := r.db.QueryRowContext(r.t.Context(), query).Scan(&owner); err != nil {
		r.t.Fatal(err)
	}
	return owner
}

// inFlight are the events of which the database does not know that they were published. It is asked right after a kill.
func (r *rig) inFlight() map[string]bool {
	r.t.Helper()
	rows, err := r.db.QueryContext(r.t.Context(), `select event_id from `+r.table("outbox_event")+` e where not exists (select 1 from `+
		r.table("outbox_delivery")+` d where d.seq = e.seq and d.status = 'PUBLISHED')`)
	if err != nil {
		r.t.Fatal(err)
	}
	defer rows.Close()
	ids := map[string]bool{}
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			r.t.Fatal(err)
		}
		ids[id] = true
	}
	if err := rows.Err(); err != nil {
		r.t.Fatal(err)
	}
	return ids
}

// producer writes transactions and keeps a record of them.
type producer struct {
	*rig
	committed, rolledBack map[string]bool
	keys                  map[string][]string // committed ids by key, in order
}

// produce writes n transactions, one in five of which is rolled back.
func (p *producer) produce(n int) {
	for range n {
		events := make([]outbox.Event, 1+rand.N(3))
		for i := range events {
			key := ""
			if k := rand.N(12); k > 0 {
				key = fmt.Sprintf("key-%d", k)
			}
			events[i] = outbox.Event{Topic: "orders", Key: key, Type: "T", Payload: fmt.Appendf(nil, "{%q: 1.0}", key)}
		}
		commit := rand.N(5) > 0
		for i, id := range p.enqueue(commit, events...) {
			if !commit {
				p.rolledBack[id] = true
				continue
			}
			p.committed[id] = true
			if key := events[i].Key; key != "" {
				p.keys[key] = append(p.keys[key], id)
			}
		}
	}
}

func (p *producer) judge(arrivals []arrival, inFlight map[string]bool, killed time.Time) {
	first := map[string]int{}
	twice := 0
	for i, a := range arrivals {
		if p.rolledBack[a.id] || !p.committed[a.id] {
			p.t.Errorf("event %s arrived and was never committed", a.id)
		}
		before, again := first[a.id]
		if !again {
			first[a.id] = i
			continue
		}
		twice++
		if !inFlight[a.id] || arrivals[before].at.After(killed) {
			p.t.Errorf("event %s arrived twice and was not in flight at the kill", a.id)
		}
	}
	for id := range p.committed {
		if _, there := first[id]; !there {
			p.t.Errorf("event %s was committed and never arrived", id)
		}
	}
	for key, ids := range p.keys {
		for i := 1; i < len(ids); i++ {
			if first[ids[i]] < first[ids[i-1]] {
				p.t.Errorf("key %s: event %d arrived before event %d", key, i+1, i)
			}
		}
	}
	p.t.Logf("%d committed, %d rolled back, %d arrived twice of %d not known to be published at the kill",
		len(p.committed), len(p.rolledBack), twice, len(inFlight))
}

// ---- What one relay says and serves ----------------------------------------------------------------------------------

// One relay: its log, its health, its metrics, a pause and a resume, a clean stop.
func TestRunSaysWhatItDoes(t *testing.T) {
	onBoth(t, func(r *rig) {
		file := r.config("    retry: {base: 100ms, max_attempts: 2}\n")
		relay := start(r.t, "run", "-c", file)
		if status, body := relay.get("/healthz"); status != 200 || body != "ok\n" {
			r.t.Errorf("/healthz = %d %q, want 200 ok", status, body)
		}
		within(r.t, 20*time.Second, "the relay to be ready", func() bool { status, _ := relay.get("/readyz"); return status == 200 })

		published := r.enqueue(true, outbox.Event{Topic: "orders", Key: "secret key", Type: "Accepted", Payload: []byte(`{"a": "secret payload"}`)})
		within(r.t, 20*time.Second, "the event", func() bool { return len(relay.lines("attempt")) == 1 })
		r.receiver.answers(http.StatusInternalServerError)
		failed := r.enqueue(true, outbox.Event{Topic: "orders", Type: "Accepted", Payload: []byte(`{}`)})
		within(r.t, 20*time.Second, "both attempts", func() bool { return len(relay.lines("attempt")) == 3 })
		for i, want := range []map[string]any{
			{"level": "INFO", "event_id": published[0], "attempt": 1., "outcome": "published", "status": "PUBLISHED", "code": "", "receipt": "204"},
			{"level": "WARN", "event_id": failed[0], "attempt": 1., "outcome": "retry", "status": "FAILED", "code": "HTTP_500"},
			{"level": "ERROR", "event_id": failed[0], "attempt": 2., "outcome": "retry", "status": "QUARANTINED", "code": "EXHAUSTED"},
		} {
			got := relay.lines("attempt")[i]
			for field, value := range want {
				if got[field] != value {
					r.t.Errorf("line %d: %s = %v, want %v", i+1, field, got[field], value)
				}
			}
		}
		r.receiver.answers(http.StatusNoContent)
		within(r.t, 20*time.Second, "the metrics", func() bool {
			_, body := relay.get("/metrics")
			return strings.Contains(body, `outbox_publish_success_total{destination="receiver"} 1`) &&
				strings.Contains(body, `outbox_publish_failure_total{code="HTTP_500",destination="receiver"} 1`) &&
				strings.Contains(body, `outbox_publish_failure_total{code="EXHAUSTED",destination="receiver"} 1`) &&
				strings.Contains(body, `outbox_quarantined_count{destination="receiver"} 1`)
		})

		must(r.t, "pause", "receiver", "-c", file, "--reason", "test")
		within(r.t, 20*time.Second, "the relay to heed the pause", func() bool { return strings.Contains(relay.logged(), `"msg":"pause changed"`) })
		before := r.receiver.distinct()
		r.enqueue(true, outbox.Event{Topic: "orders", Type: "Accepted", Payload: []byte(`{}`)})
		time.Sleep(500 * time.Millisecond)
		if got := r.receiver.distinct(); got != before {
			r.t.Errorf("%d events arrived while paused", got-before)
		}
		must(r.t, "resume", "receiver", "-c", file)
		within(r.t, 20*time.Second, "the event that waited", func() bool { return r.receiver.distinct() == before+1 })

		if code := relay.stop(); code != 0 {
			r.t.Errorf("exit status %d after SIGTERM, want 0", code)
		}
		if log := relay.logged(); strings.Contains(log, "secret key") || strings.Contains(log, "secret payload") || strings.Contains(log, secret) {
			r.t.Error("the log shows a payload, a key or a secret")
		}
		if report := r.status(); !strings.Contains(report, `"state": "no relay"`) || !strings.Contains(report, `"estimated": false`) {
			r.t.Errorf("status --json: %s", report)
		}
	})
}

func (r *rig) status() string {
	r.t.Helper()
	text := must(r.t, "status", "-c", r.config(""), "--json")
	if !json.Valid([]byte(text)) {
		r.t.Errorf("status --json is no JSON: %s", text)
	}
	return text
}

// A second signal ends at once what the first one would wait for.
func TestRunEndsAtOnceAtTheSecondSignal(t *testing.T) {
	r := &rig{t: t, url: "sqlite://" + filepath.Join(t.TempDir(), "box.db"), receiver: newReceiver(t)}
	db, err := sqlite.OpenDB(t.Context(), sqlite.Config{Path: strings.TrimPrefix(r.url, "sqlite://")})
	r.open(db, err, outbox.SQLite)
	r.receiver.takes = 5 * time.Second
	relay := start(t, "run", "-c", r.config(""))
	r.enqueue(true, outbox.Event{Topic: "orders", Type: "T", Payload: []byte(`{}`)})
	within(t, 20*time.Second, "a delivery that takes long", func() bool { return len(r.receiver.arrived()) > 0 })
	for range 2 {
		if err := relay.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
	}
	relay.wait(2 * time.Second)
	if state := relay.cmd.ProcessState.Sys().(syscall.WaitStatus); state.Signal() != syscall.SIGTERM {
		t.Errorf("the process ended with %v, want it ended by the signal", relay.cmd.ProcessState)
	}
}

// A missing secret file stops nothing else, is told at the start, and nothing goes out unsigned.
func TestRunTellsAMissingSecretFile(t *testing.T) {
	r := &rig{t: t, url: "sqlite://" + filepath.Join(t.TempDir(), "box.db"), receiver: newReceiver(t)}
	r.receiver.secretFile = "/nowhere/secret"
	db, err := sqlite.OpenDB(t.Context(), sqlite.Config{Path: strings.TrimPrefix(r.url, "sqlite://")})
	r.open(db, err, outbox.SQLite)
	relay := start(t, "run", "-c", r.config(""))
	within(t, 20*time.Second, "the warning", func() bool { return len(relay.lines("a destination is not ready")) > 0 })
	line := relay.lines("a destination is not ready")[0]
	if want := "secret_file: open /nowhere/secret: no such file or directory: mount it and let the relay's user read it"; line["problem"] != want {
		t.Errorf("problem = %v, want %s", line["problem"], want)
	}
	r.enqueue(true, outbox.Event{Topic: "orders", Type: "T", Payload: []byte(`{}`)})
	within(t, 20*time.Second, "the attempt", func() bool { return len(relay.lines("attempt")) > 0 })
	if line := relay.lines("attempt")[0]; line["code"] != "CONFIG" || line["status"] == "QUARANTINED" {
		t.Errorf("attempt = %v, want it to wait with CONFIG", line)
	}
	if n := len(r.receiver.arrived()); n != 0 {
		t.Errorf("%d requests arrived, want none", n)
	}
}
