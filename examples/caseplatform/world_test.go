package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/internal/child"
	"github.com/pillarbox-dev/pillarbox/internal/kafkatest"
	"github.com/pillarbox-dev/pillarbox/internal/pgtest"
	"github.com/pillarbox-dev/pillarbox/relay/relaytest"
)

// world is everything around a service: its clients, the workflow engine, and a broker and databases of the test's own.
type world struct {
	*testing.T
	demo
	cluster *kafkatest.Cluster
	stop    func() // of the clients
}

// newWorld starts all but the service and the clients.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, cluster: kafkatest.New(t, kafkatest.Options{})}
	w.settings = settings{database: pgtest.Database(t), workflow: pgtest.Database(t), brokers: w.cluster.Seeds()}
	w.listen, w.started, w.service = freeAddress(t), time.Now(), &child.Process{}
	must(t, createTopics(t.Context(), w.brokers))
	var err error
	w.cases, err = openPool(t.Context(), w.database)
	must(t, err)
	t.Cleanup(w.cases.Close)
	must(t, makeTables(t.Context(), w.cases, outboxSchema, caseTables))
	w.engine, err = openPool(t.Context(), w.workflow)
	must(t, err)
	t.Cleanup(w.engine.Close)
	w.consume()
	return w
}

// consume lets the workflow engine run until the test ends.
func (w *world) consume() {
	w.Helper()
	var err error
	w.flow, err = newWorkflow(w.Context(), w.engine, w.brokers, slog.New(slog.DiscardHandler))
	must(w.T, err)
	consuming, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.flow.Run(consuming) }()
	w.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			w.Error(err)
		}
	})
}

// work lets clients work until stop is called. While there is no service they wait for it.
func (w *world) work() {
	w.Helper()
	w.client = &client{url: "http://" + w.listen, name: "CASE-" + rand.Text()[:6], rest: 50 * time.Millisecond}
	working, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.client.run(working) }()
	stopped := false
	w.stop = func() {
		w.Helper()
		if stop(); stopped {
			return
		}
		stopped = true
		if err := <-ended; err != nil {
			w.Error(err)
		}
	}
	w.Cleanup(w.stop)
}

// doomed starts a service that kills itself the nth time it passes a point; never when that is "".
func (w *world) doomed(point relaytest.Point, nth int) *program {
	w.Helper()
	text, err := json.Marshal(doom{Database: w.database, Listen: w.listen, Brokers: w.brokers, Point: point, Nth: nth})
	must(w.T, err)
	return start(w.T, asDoomed, nil, string(text))
}

// expireLease lets another relay take over at once from one that was killed.
func (w *world) expireLease() {
	w.Helper()
	_, err := w.cases.Exec(w.Context(), `update integration.outbox_cursor set lease_expires_at = 'epoch'`)
	must(w.T, err)
}

// recover lets a service that nobody kills get on. Kills in a row without that look like an event that ends the process, and the
// relay would put into quarantine what was alone in flight at several of them.
func (w *world) recover() {
	w.Helper()
	p := w.doomed("", 0)
	const getsOn = `
select count(*) from integration.outbox_cursor
 where crash_count = 0 and position > acquired_position and lease_expires_at > now()`
	within(w.T, time.Minute, "a service gets on", func() bool {
		if !strings.Contains(p.logged(), "took the lease") {
			w.expireLease() // a last settle of the one that was killed may come late
			return false
		}
		return number(w.T, w.cases, getsOn) == 1
	})
	if code := p.stop(); code != 0 {
		w.Fatalf("a service ended with %d, want a clean stop", code)
	}
}

// verdict waits until all has arrived, and holds every record against every other.
func (w *world) verdict() {
	w.Helper()
	w.stop()
	within(w.T, time.Minute, "all that was committed has arrived", func() bool {
		r, err := w.reckon(w.Context())
		must(w.T, err)
		return r.Pending+r.Lost == 0
	})
	r, err := w.reckon(w.Context())
	must(w.T, err)
	w.Logf("%d events committed, %d rolled back, %d duplicates absorbed", r.Committed, r.RolledBack, r.Duplicates)
	if !r.Kept() || r.Delivered != r.Committed || r.Committed == 0 {
		w.Errorf("the reckoning:\n%v", r)
	}
	if _, _, faults := w.client.record(); faults != nil {
		w.Errorf("clients were given wrong answers: %v", faults)
	}
	w.books()
}

// books are queries that count what must not be.
var books = []struct{ of, what, query string }{
	{"service", "changes without their event", `select count(*) from case_core.case_audit_log a
		where not exists (select from integration.outbox_event e where e.dedup_key = concat_ws('/', a.action, a.case_id, a.version))`},
	{"service", "events without their change", `select count(*) from integration.outbox_event e
		where not exists (select from case_core.case_audit_log a where e.dedup_key = concat_ws('/', a.action, a.case_id, a.version))`},
	{"service", "cases without their lines in the audit log", `select count(*) from case_core.case_file f
		where f.version <> (select count(*) from case_core.case_audit_log a where a.case_id = f.case_id)`},
	{"service", "deliveries that are not published", `select count(*) from integration.outbox_status where status <> 'PUBLISHED'`},
	{"engine", "events handled twice",
		`select count(*) from (select from workflow.case_history group by event_type, case_id, version having count(*) > 1) twice`},
	{"engine", "events handled out of order", `select count(*) from (
		select version, lag(version, 1, 0::bigint) over (partition by case_id order by number) as before from workflow.case_history) h
		where version <> before + 1`},
	{"engine", "events handled without the inbox", `select count(*) from workflow.case_history h
		where not exists (select from workflow.outbox_inbox i where i.event_id = h.event_id)`},
	{"engine", "instances not told exactly once", `select count(*) from workflow.case_view v
		join workflow.instance i on i.business_key = v.case_id where i.correlations <> case v.status when 'ACCEPTED' then 1 else 0 end`},
	{"engine", "cases without an instance", `select count(*) from workflow.case_view v
		where not exists (select from workflow.instance i where i.business_key = v.case_id)`},
	{"engine", "dead letters", `select count(*) from workflow.outbox_inbox i
		where not exists (select from workflow.case_history h where h.event_id = i.event_id)`},
}

// books looks for what must not be, on both sides, and whether they agree.
func (w *world) books() {
	w.Helper()
	for _, b := range books {
		pool := w.cases
		if b.of == "engine" {
			pool = w.engine
		}
		if n := number(w.T, pool, b.query); n > 0 {
			w.Errorf("%s: %d", b.what, n)
		}
	}
	const all = `select coalesce(md5(string_agg(concat_ws(' ', case_id, tenant_id, status, version), ',' order by case_id)), '')
		from `
	if text(w.T, w.cases, all+"case_core.case_file") != text(w.T, w.engine, all+"workflow.case_view") {
		w.Error("the workflow engine's projection is not what the service has")
	}
}
