package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/ops"
	"github.com/pillarbox-dev/pillarbox/outbox"
)

func (r *rig) exec(format string, args ...any) {
	r.t.Helper()
	if _, err := r.db.ExecContext(r.t.Context(), fmt.Sprintf(format, args...)); err != nil {
		r.t.Fatal(err)
	}
}

// What was lost behind the relay's back is found by command and on the schedule; heartbeats go where events go.
func TestReconcileAndHeartbeats(t *testing.T) {
	onBoth(t, func(r *rig) {
		config := r.config(`
reconcile:
  every: 1s
  queries: [{name: refunds, hint: ask the cashier, sql: "select 7 as id, 'no event' as what"}]
heartbeats: [{name: beat, every: 1s, topic: beats, payload: "{said: .name, n: .count}"}]
`)
		r.enqueue(true, outbox.Event{Topic: "a", Type: "T"}, outbox.Event{Topic: "a", Type: "T"}, outbox.Event{Topic: "a", Type: "T"})
		relay := start(r.t, "run", "-c", r.config(""))
		within(r.t, 20*time.Second, "three events", func() bool { return len(r.receiver.arrived()) == 3 })
		relay.stop()
		r.exec("delete from %s where seq = 2", r.table("outbox_delivery"))
		relay = start(r.t, "run", "-c", config)
		within(r.t, 20*time.Second, "two heartbeats", func() bool {
			beats := 0
			for _, a := range r.receiver.arrived() {
				if strings.HasPrefix(a.body, `{"n":`) && strings.HasSuffix(a.body, `,"said":"beat"}`) {
					beats++
				}
			}
			return beats >= 2
		})
		within(r.t, 20*time.Second, "the gauges", func() bool {
			_, text := relay.get("/metrics")
			return strings.Contains(text, `outbox_reconcile_findings{check="ledger"} 1`) &&
				strings.Contains(text, `outbox_reconcile_findings{check="refunds"} 1`) &&
				strings.Contains(text, "outbox_reconcile_last_success_timestamp_seconds 1.")
		})
		if code := relay.stop(); code != exitOK {
			r.t.Errorf("exit status %d, want 0", code)
		}

		code, out, errOut := runCLI("reconcile", "-c", config)
		if code != exitFailed || errOut != "" {
			r.t.Errorf("exit status %d, want 1; %s", code, errOut)
		}
		for _, want := range []string{"refunds  1 found\nledger   1 found\n", "\nrefunds: ask the cashier\n    id=7 what=no event\n",
			"event_type=T", "problem=no row in the ledger seq=2"} {
			if !strings.Contains(out, want) {
				r.t.Errorf("printed\n%s\nwant %q in it", out, want)
			}
		}
		code, out, _ = runCLI("reconcile", "-c", config, "--all", "--json")
		var report ops.ReconcileReport
		if err := json.Unmarshal([]byte(out), &report); err != nil || code != exitFailed || len(report.Findings) != 2 {
			r.t.Errorf("exit status %d, %v, report %+v, want two findings", code, err, report)
		}

		well := r.config("")
		r.exec("insert into %s (destination, seq, status) values ('receiver', 2, 'DISCARDED')", r.table("outbox_delivery"))
		if out := must(r.t, "reconcile", "-c", well, "--since", "2h"); out != "ledger  ok\n" {
			r.t.Errorf("printed %q, want that all is well", out)
		}
	})
}

func TestReconcileRefuses(t *testing.T) {
	for _, args := range [][]string{{"--since", "tomorrow"}, {"--since", "0s"}, {"--since", "1h", "--all"}} {
		if code, _, errOut := runCLI(append([]string{"reconcile"}, args...)...); code != exitUsage || !strings.Contains(errOut, "--since") {
			t.Errorf("%v: exit status %d, %s, want 2 and a hint", args, code, errOut)
		}
	}
}

// check finds what would keep a reconciliation from being made, without making it.
func TestCheckOfReconcile(t *testing.T) {
	onBoth(t, func(r *rig) {
		schema := ""
		if r.schema != "" {
			schema = ", schema: " + r.schema
		}
		config := func(query, database string) string {
			return r.config(fmt.Sprintf(`
reconcile:
  queries: [{name: hubs, sql: %q}]
  inbox: [{destination: receiver, consumer: billing, database: %s}]
`, query, database))
		}
		well := config("select 1 where 1 = 0 -- none", fmt.Sprintf("{url: %q%s}", r.url, schema))
		out := must(r.t, "check", "-c", well)
		for _, want := range []string{"reconcile             ok  1 queries", "inbox of billing      ok"} {
			if !strings.Contains(out, want) {
				r.t.Errorf("printed\n%s\nwant %q in it", out, want)
			}
		}
		code, out, _ := runCLI("check", "-c", config("select * from nowhere", `{url: "postgres://nobody@127.0.0.1:1/x"}`))
		if code != exitFailed || !strings.Contains(out, "query hubs: ") || !strings.Contains(out, "nowhere") || !strings.Contains(out, "\n2 problems\n") {
			r.t.Errorf("exit status %d and\n%s\nwant two problems", code, out)
		}
	})
}
