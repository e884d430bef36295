package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pillarbox-dev/pillarbox/internal/cli"
)

// beside is a world whose relays run beside the service: pillarbox run -c pillarbox.yaml.
type beside struct {
	*world
	api *api // for single requests
}

// The relay runs beside the service, with the file that is in this folder. Everything that an operator of the case platform meets
// happens in turn, under load, and is dealt with by the commands that the runbooks name.
func TestRelayBeside(t *testing.T) {
	w := newWorld(t)
	for name, value := range map[string]string{
		"DATABASE_URL": w.database, "WORKFLOW_DATABASE_URL": w.workflow, "KAFKA_BROKERS": strings.Join(w.brokers, ","),
		"KAFKA_BROKER": w.brokers[0], "CASEPLATFORM": ".", "PILLARBOX_LISTEN": "127.0.0.1:0",
	} {
		t.Setenv(name, value)
	}
	b := &beside{world: w, api: &api{T: t, url: "http://" + w.listen}}
	b.pillarbox(0, "contract", "check", "contracts")
	b.pillarbox(0, "check", "-c", "pillarbox.yaml")
	service := start(t, asCasePlatform, nil, "service", "--relay=false", "--listen", w.listen)
	within(t, time.Minute, "the service serves", func() bool { return strings.Contains(service.logged(), "relay_inside=false") })
	relays := []*program{b.relay(), b.relay()}
	for _, episode := range []struct {
		name string
		play func()
	}{
		{"what a consumer gets", b.wire},
		{"the clients begin", w.work},
		{"relays are killed", func() { b.killRelays(relays) }},
		{"the service is killed", func() { b.killService(service) }},
		{"Kafka is down", func() { b.kafkaDown(relays) }},
		{"reconciliation", b.reconciled},
		{"a poison event", b.poison},
		{"the verdict", w.verdict},
		{"the archive", b.archive},
	} {
		t.Logf("%5.1fs %s", time.Since(w.started).Seconds(), episode.name)
		episode.play()
	}
}

// pillarbox runs a command, wants an exit status, and returns what it printed.
func (b *beside) pillarbox(want int, args ...string) string {
	b.Helper()
	var out, errOut bytes.Buffer
	if code := cli.Run(args, &out, &errOut); code != want {
		b.Fatalf("pillarbox %s: exit status %d, want %d\n%s%s", strings.Join(args, " "), code, want, &out, &errOut)
	}
	return out.String()
}

func (b *beside) relay() *program {
	b.Helper()
	return start(b.T, asPillarbox, nil, "run", "-c", "pillarbox.yaml", "--log-attempts=false")
}

// accept submits and accepts a case.
func (b *beside) accept(caseID string) {
	b.Helper()
	b.submit(caseID)
	answer, body := b.api.post("/cases/"+caseID+"/accept", `{"acceptedBy": "officer-7"}`,
		"Idempotency-Key", "accept-"+caseID, correlationHeader, "corr-"+caseID)
	if answer.StatusCode != http.StatusOK {
		b.Fatalf("accept %s: %d %s", caseID, answer.StatusCode, body)
	}
}

func (b *beside) submit(caseID string) {
	b.Helper()
	if answer, body := b.api.post("/cases", fmt.Sprintf(`{"caseId": %q}`, caseID)); answer.StatusCode != http.StatusCreated {
		b.Fatalf("submit %s: %d %s", caseID, answer.StatusCode, body)
	}
}

// wire looks at what a consumer gets: the key, the headers, and the envelope with its members in their order.
func (b *beside) wire() {
	b.Helper()
	b.accept("WIRE-1")
	records, err := b.cluster.ReadAll(b.Context(), lifecycleTopic, 2)
	must(b.T, err)
	var r *kgo.Record
	for _, record := range records {
		if bytes.Contains(record.Value, []byte(`"CaseAccepted"`)) {
			r = record
		}
	}
	if r == nil || string(r.Key) != "WIRE-1" {
		b.Fatalf("the record of CaseAccepted is %+v, want one with the key WIRE-1", r)
	}
	headers := map[string]string{}
	for _, h := range r.Headers {
		headers[h.Key] = string(h.Value)
	}
	for name, want := range map[string]string{
		"eventId":   text(b.T, b.cases, `select event_id from integration.outbox_event where event_type = 'CaseAccepted'`),
		"eventType": "CaseAccepted", "eventVersion": "1", "schemaRef": "reg.case.lifecycle.CaseAccepted.v1",
		"correlationId": "corr-WIRE-1", "tenantId": "registry", "producer": "case-platform",
	} {
		if headers[name] != want {
			b.Errorf("header %s = %q, want %q", name, headers[name], want)
		}
	}
	const moment = `"20[0-9-]{8}T[0-9:.]+Z"`
	want := regexp.MustCompile(`^\{"eventId":"` + headers["eventId"] + `","eventType":"CaseAccepted","eventVersion":1,` +
		`"schemaRef":"reg.case.lifecycle.CaseAccepted.v1","aggregateType":"case","aggregateId":"WIRE-1","aggregateVersion":2,` +
		`"producer":"case-platform","occurredAt":` + moment + `,"publishedAt":` + moment + `,"payload":\{"caseId":"WIRE-1",` +
		`"tenantId":"registry","status":"ACCEPTED","version":2,"acceptedAt":` + moment + `,"acceptedBy":"officer-7"\}\}$`)
	if !want.Match(r.Value) {
		b.Errorf("the value is\n%s\nwant\n%s", r.Value, want)
	}
	within(b.T, time.Minute, "the workflow instance is told", func() bool {
		const told = `select count(*) from workflow.instance
			where business_key = 'WIRE-1' and correlations = 1 and correlation_id = 'corr-WIRE-1'`
		return number(b.T, b.engine, told) == 1
	})
}

// handled waits until the workflow engine has handled so many more events.
func (b *beside) handled(more uint64) {
	b.Helper()
	from := b.flow.Stats().Handled
	within(b.T, time.Minute, fmt.Sprintf("%d more events are handled", more), func() bool {
		return b.flow.Stats().Handled >= from+more
	})
}

// killRelays kills, twice, the relay that has the lease, in the midst of its work. The other one goes on when the lease has
// run out.
func (b *beside) killRelays(relays []*program) {
	b.Helper()
	for range 2 {
		b.handled(50)
		owner := text(b.T, b.cases, `select coalesce(lease_owner, '') from integration.outbox_cursor`)
		for i, relay := range relays {
			if strings.Contains(owner, fmt.Sprintf("-%d-", relay.cmd.Process.Pid)) {
				relay.kill()
				relays[i] = b.relay()
			}
		}
	}
	b.handled(50)
}

// killService kills the service. Its relays go on, and so do the clients when there is another one.
func (b *beside) killService(service *program) {
	b.Helper()
	service.kill()
	start(b.T, asCasePlatform, nil, "service", "--relay=false", "--listen", b.listen)
	b.handled(50)
}

// status is what pillarbox status says of the destination.
func (b *beside) status() (s struct {
	State                        string
	Pending, Failed, Quarantined struct{ Count int }
}) {
	b.Helper()
	var all struct{ Destinations []json.RawMessage }
	must(b.T, json.Unmarshal([]byte(b.pillarbox(0, "status", "-c", "pillarbox.yaml", "--json")), &all))
	if len(all.Destinations) != 1 {
		b.Fatalf("status shows %d destinations, want one", len(all.Destinations))
	}
	must(b.T, json.Unmarshal(all.Destinations[0], &s))
	return s
}

// kafkaDown is docs/runbooks/kafka-down.md: cases are accepted all the same, nothing is charged or quarantined, and all of it is
// delivered when the broker is back.
func (b *beside) kafkaDown(relays []*program) {
	b.Helper()
	broker := b.cluster.Brokers[0]
	must(b.T, broker.Kill())
	committed := func() int { all, _, _ := b.client.record(); return len(all) }
	before := committed()
	within(b.T, time.Minute, "cases are accepted without Kafka", func() bool { return committed() >= before+200 })
	within(b.T, time.Minute, "status says what is wrong", func() bool {
		s := b.status()
		return s.State == "failing" && s.Pending.Count >= 200 && s.Failed.Count == 0
	})
	b.Logf("while the broker is down: %s", b.pillarbox(0, "status", "-c", "pillarbox.yaml"))
	if out := b.pillarbox(1, "check", "-c", "pillarbox.yaml"); !strings.Contains(out, "lifecycle") {
		b.Errorf("check does not name the destination:\n%s", out)
	}
	must(b.T, broker.Up())
	b.handled(200)
	within(b.T, time.Minute, "status says that it is over", func() bool { return b.status().State == "running" })
	for _, line := range []string{"the endpoint is down: probing it from time to time", "the endpoint is back"} {
		if !slices.ContainsFunc(relays, func(p *program) bool { return strings.Contains(p.logged(), line) }) {
			b.Errorf("no relay has logged %q", line)
		}
	}
	const charged = `select count(*) from integration.outbox_delivery where attempt_count > 1 or status in ('FAILED', 'QUARANTINED')`
	if n := number(b.T, b.cases, charged); n > 0 {
		b.Errorf("the outage cost %d deliveries an attempt", n)
	}
}

// reconciled: all is well, until somebody changes a case past the service, or the workflow engine forgets an event.
func (b *beside) reconciled() {
	b.Helper()
	hasty := b.changed("after: 10m", "after: 1s")
	b.pillarbox(0, "reconcile", "-c", "pillarbox.yaml")

	b.submit("PLANT-1")
	b.exec(`update case_core.case_file set status = 'ACCEPTED', version = 2, accepted_at = now(), accepted_by = 'a script'
		where case_id = 'PLANT-1'`)
	out := b.pillarbox(1, "reconcile", "-c", "pillarbox.yaml", "--json")
	for _, want := range []string{`"accepted-without-event"`, `"PLANT-1"`, `"a script"`, "changed the case past the service"} {
		if !strings.Contains(out, want) || strings.Count(out, `"case_id"`) != 1 {
			b.Errorf("reconcile does not find the planted case alone, with %s:\n%s", want, out)
		}
	}
	b.exec(`update case_core.case_file set status = 'SUBMITTED', version = 1, accepted_at = null, accepted_by = null
		where case_id = 'PLANT-1'`)

	event := text(b.T, b.cases, `select event_id from integration.outbox_event where dedup_key = 'CaseAccepted/WIRE-1/2'`)
	_, err := b.engine.Exec(b.Context(), `update workflow.outbox_inbox set consumer = 'somebody' where event_id = $1`, event)
	must(b.T, err)
	if out := b.pillarbox(1, "reconcile", "-c", hasty, "--json"); !strings.Contains(out, event) {
		b.Errorf("reconcile does not find the event that the workflow engine forgot, %s:\n%s", event, out)
	}
	_, err = b.engine.Exec(b.Context(), `update workflow.outbox_inbox set consumer = $2 where event_id = $1`, event, consumerName)
	must(b.T, err)
	b.pillarbox(0, "reconcile", "-c", "pillarbox.yaml")
}

// poison is docs/runbooks/poison-event.md: an import script has written an event that breaks its contract. It is quarantined,
// what comes after it for the same case waits, and no other case does. Repaired, both arrive, in order.
func (b *beside) poison() {
	b.Helper()
	tx, err := b.cases.Begin(b.Context())
	must(b.T, err)
	defer func() { _ = tx.Rollback(context.Background()) }() // after a commit it does nothing
	for _, sql := range []string{
		`insert into case_core.case_file (case_id, tenant_id, status, version) values ('POISON-1', 'registry', 'SUBMITTED', 1)`,
		`insert into case_core.case_audit_log (case_id, version, action, actor, correlation_id)
			values ('POISON-1', 1, 'CaseSubmitted', 'import', 'import-7')`,
		`insert into integration.outbox_event (topic_name, partition_key, aggregate_type, aggregate_id, aggregate_version, event_type,
				schema_ref, payload, dedup_key, headers)
			values ('reg.case.lifecycle.v1', 'POISON-1', 'case', 'POISON-1', 1, 'CaseSubmitted',
				'reg.case.lifecycle.CaseSubmitted.v1',
				'{"caseId": "POISON-1", "tenantId": "registry", "status": "SUBMITTED", "version": 1}',
				'CaseSubmitted/POISON-1/1', '{"correlationId": "import-7"}')`,
	} {
		_, err := tx.Exec(b.Context(), sql)
		must(b.T, err)
	}
	must(b.T, tx.Commit(b.Context()))
	answer, body := b.api.post("/cases/POISON-1/accept", ``, "Idempotency-Key", "accept-POISON-1")
	if answer.StatusCode != http.StatusOK {
		b.Fatalf("accept POISON-1: %d %s", answer.StatusCode, body)
	}
	status := func(dedupKey string) string {
		const query = `select concat_ws(' ', status, last_error_code) from integration.outbox_status where dedup_key = $1`
		return text(b.T, b.cases, query, dedupKey)
	}
	within(b.T, time.Minute, "the poison is quarantined", func() bool {
		return status("CaseSubmitted/POISON-1/1") == "QUARANTINED SCHEMA_INVALID"
	})
	b.handled(50) // nobody else waits
	if got := status("CaseAccepted/POISON-1/2"); got != "PENDING" {
		b.Errorf("the event behind the poison is %s, want PENDING", got)
	}
	id := text(b.T, b.cases, `select event_id from integration.outbox_event where dedup_key = 'CaseSubmitted/POISON-1/1'`)
	for _, look := range [][]string{{"list", "--status", "QUARANTINED"}, {"show", id}} {
		out := b.pillarbox(0, append([]string{"events", "-c", "pillarbox.yaml"}, look...)...)
		if !strings.Contains(out, "POISON-1") || !strings.Contains(out, "SCHEMA_INVALID") {
			b.Errorf("events %v does not show the poison:\n%s", look, out)
		}
	}

	var event struct{ Payload map[string]any }
	must(b.T, json.Unmarshal([]byte(b.pillarbox(0, "events", "-c", "pillarbox.yaml", "show", id, "--json")), &event))
	mended := filepath.Join(b.TempDir(), "payload.json")
	mend := func(submittedAt string) {
		event.Payload["submittedAt"] = submittedAt
		text, err := json.Marshal(event.Payload)
		must(b.T, err)
		must(b.T, os.WriteFile(mended, text, 0o600))
	}
	const reason = "the import left the time out"
	repair := []string{"repair", "-c", "pillarbox.yaml", "lifecycle", id, "--payload", mended, "--reason", reason}
	mend("yesterday")
	b.pillarbox(1, repair...) // a repair is held to the contract too
	mend("2026-11-30T08:14:00Z")
	b.pillarbox(0, repair...)
	within(b.T, time.Minute, "both have arrived", func() bool {
		const told = `select count(*) from workflow.instance where business_key = 'POISON-1' and correlations = 1`
		return number(b.T, b.engine, told) == 1 && status("CaseAccepted/POISON-1/2") == "PUBLISHED"
	})
	if n := b.status().Quarantined.Count; n != 0 {
		b.Errorf("status shows %d in quarantine, want 0", n)
	}
	if out := b.pillarbox(0, "log", "-c", "pillarbox.yaml"); !strings.Contains(out, reason) {
		b.Errorf("the operators' log does not tell of the repair:\n%s", out)
	}
}

// archive moves what was delivered out of the log when its time has come, and loses nothing on the way.
func (b *beside) archive() {
	b.Helper()
	rows := func(table string) int { return number(b.T, b.cases, `select count(*) from integration.`+table) }
	events := rows("outbox_event")
	b.pillarbox(0, "retention", "-c", "pillarbox.yaml")
	if n := rows("outbox_event_archive"); n > 0 {
		b.Errorf("%d events are archived before their time", n)
	}
	b.exec(`update integration.outbox_event set created_at = created_at - interval '31 days'`)
	b.pillarbox(0, "retention", "-c", "pillarbox.yaml")
	for table, want := range map[string]int{
		"outbox_event": 0, "outbox_delivery": 0, "outbox_event_archive": events, "outbox_delivery_archive": events,
	} {
		if got := rows(table); got != want {
			b.Errorf("%s has %d rows, want %d", table, got, want)
		}
	}
	archived := text(b.T, b.cases, `select event_id from integration.outbox_event_archive where dedup_key = 'CaseAccepted/WIRE-1/2'`)
	if out := b.pillarbox(0, "events", "-c", "pillarbox.yaml", "show", archived); !strings.Contains(out, "WIRE-1") {
		b.Errorf("events show does not find it in the archive:\n%s", out)
	}
}

func (b *beside) exec(sql string, args ...any) {
	b.Helper()
	_, err := b.cases.Exec(context.WithoutCancel(b.Context()), sql, args...)
	must(b.T, err)
}

// changed returns a copy of pillarbox.yaml in which something is different.
func (b *beside) changed(from, to string) string {
	b.Helper()
	file, err := os.ReadFile("pillarbox.yaml")
	must(b.T, err)
	if !bytes.Contains(file, []byte(from)) {
		b.Fatalf("pillarbox.yaml does not say %s", from)
	}
	path := filepath.Join(b.TempDir(), "pillarbox.yaml")
	must(b.T, os.WriteFile(path, bytes.ReplaceAll(file, []byte(from), []byte(to)), 0o600))
	return path
}
