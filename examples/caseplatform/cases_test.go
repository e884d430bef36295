package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pillarbox-dev/pillarbox/contract"
	"github.com/pillarbox-dev/pillarbox/internal/pgtest"
	"github.com/pillarbox-dev/pillarbox/outbox"
)

// api is the service's API without a relay.
type api struct {
	*testing.T
	*cases
	url string
}

func newAPI(t *testing.T) *api {
	t.Helper()
	pool, err := openPool(t.Context(), pgtest.Database(t))
	must(t, err)
	t.Cleanup(pool.Close)
	must(t, makeTables(t.Context(), pool, outboxSchema, caseTables))
	box, err := outbox.New(outbox.Postgres, outbox.Options{Schema: outboxSchema})
	must(t, err)
	contracts, err := loadContracts()
	must(t, err)
	a := &api{T: t, cases: &cases{
		pool: pool, box: contract.Checking(box, contracts), beforeCommit: func() error { return nil },
		log: slog.New(slog.DiscardHandler),
	}}
	handler, err := a.handler()
	must(t, err)
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	a.url = server.URL
	return a
}

// post asks for something, with headers in pairs, and returns the answer with its body.
func (a *api) post(path, body string, headers ...string) (*http.Response, string) {
	a.Helper()
	req, err := http.NewRequestWithContext(a.Context(), http.MethodPost, a.url+path, strings.NewReader(body))
	must(a.T, err)
	req.Header.Set(tenantHeader, "registry")
	for i := 0; i < len(headers); i += 2 {
		if req.Header.Set(headers[i], headers[i+1]); headers[i+1] == "" {
			req.Header.Del(headers[i])
		}
	}
	answer, err := http.DefaultClient.Do(req)
	must(a.T, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	must(a.T, err)
	return answer, string(text)
}

// number returns the one number that a query gives.
func number(t *testing.T, pool *pgxpool.Pool, query string, args ...any) (n int) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), query, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

// text returns the one text that a query gives.
func text(t *testing.T, pool *pgxpool.Pool, query string, args ...any) (s string) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), query, args...).Scan(&s); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return s
}

// Accepting a case changes it, writes the audit log and the event, all as others expect them.
func TestAccept(t *testing.T) {
	a := newAPI(t)
	if answer, body := a.post("/cases", `{"caseId": "CASE-1", "subject": "A shop"}`); answer.StatusCode != 201 {
		t.Fatalf("submit: %d %s", answer.StatusCode, body)
	}
	answer, body := a.post("/cases/CASE-1/accept", `{"acceptedBy": "officer-7"}`,
		"Idempotency-Key", "k1", correlationHeader, "corr-9")
	if answer.StatusCode != 200 {
		t.Fatalf("accept: %d %s", answer.StatusCode, body)
	}
	for what, c := range map[string]struct{ query, want string }{
		"the case": {`select concat_ws(' ', status, version, accepted_by) from case_core.case_file`, "ACCEPTED 2 officer-7"},
		"the audit log": {`select concat_ws(' ', action, version, actor, correlation_id)
			from case_core.case_audit_log where version = 2`, "CaseAccepted 2 officer-7 corr-9"},
		"the event": {`select concat_ws(' ', topic_name, partition_key, aggregate_type, aggregate_id, aggregate_version, event_type,
				event_version, schema_ref, dedup_key)
			from integration.outbox_event where event_type = 'CaseAccepted'`,
			"reg.case.lifecycle.v1 CASE-1 case CASE-1 2 CaseAccepted 1 reg.case.lifecycle.CaseAccepted.v1 CaseAccepted/CASE-1/2"},
		"its headers": {`select concat_ws(' ', headers ->> 'correlationId', headers ->> 'tenantId', headers ->> 'producer')
			from integration.outbox_event where event_type = 'CaseAccepted'`, "corr-9 registry case-platform"},
		"its payload": {`select payload::text from integration.outbox_event where event_type = 'CaseAccepted'`, body},
		"one of each": {`select string_agg(event_type, ' ' order by seq) from integration.outbox_event`, "CaseSubmitted CaseAccepted"},
	} {
		if got := text(t, a.pool, c.query); got != c.want {
			t.Errorf("%s: got %s, want %s", what, got, c.want)
		}
	}
}

// A request that comes again gets the first answer, whatever that was, and changes nothing.
func TestReplay(t *testing.T) {
	a := newAPI(t)
	a.post("/cases", `{"caseId": "CASE-1"}`)
	for _, c := range []struct {
		name, path, body, key string
		status                int
		code                  string // of the problem
		replayed              bool
	}{
		{"first", "/cases/CASE-1/accept", `{"acceptedBy": "a"}`, "k1", 200, "", false},
		{"again", "/cases/CASE-1/accept", `{"acceptedBy": "a"}`, "k1", 200, "", true},
		{"and again", "/cases/CASE-1/accept", `{"acceptedBy": "a"}`, "k1", 200, "", true},
		{"the key with another body", "/cases/CASE-1/accept", `{"acceptedBy": "b"}`, "k1", 422, "", false},
		{"the key for another case", "/cases/CASE-2/accept", `{"acceptedBy": "a"}`, "k1", 422, "", false},
		{"accepted already", "/cases/CASE-1/accept", `{"acceptedBy": "a"}`, "k2", 409, "CASE_NOT_SUBMITTED", false},
		{"accepted already, again", "/cases/CASE-1/accept", `{"acceptedBy": "a"}`, "k2", 409, "CASE_NOT_SUBMITTED", true},
		{"no such case", "/cases/CASE-2/accept", ``, "k3", 404, "CASE_NOT_FOUND", false},
		{"no key", "/cases/CASE-1/accept", ``, "", 400, "", false},
		{"nonsense", "/cases/CASE-1/accept", `{"acceptedBy": 7`, "k4", 400, "BAD_REQUEST", false},
		{"unknown field", "/cases/CASE-1/accept", `{"approvedBy": "a"}`, "k5", 400, "BAD_REQUEST", false},
	} {
		answer, body := a.post(c.path, c.body, "Idempotency-Key", c.key)
		var p problem
		if err := json.Unmarshal([]byte(body), &p); err != nil && answer.StatusCode != 200 {
			t.Errorf("%s: %q is no JSON: %v", c.name, body, err)
		}
		replayed := answer.Header.Get("Idempotency-Replayed") == "true"
		if answer.StatusCode != c.status || p.Code != c.code || replayed != c.replayed {
			t.Errorf("%s: %d %q, replayed %v, want %d %q, %v", c.name, answer.StatusCode, p.Code, replayed, c.status, c.code, c.replayed)
		}
		if want := "application/problem+json"; c.code != "" && (answer.Header.Get("Content-Type") != want || p.Status != c.status) {
			t.Errorf("%s: %s with status %d, want %s", c.name, answer.Header.Get("Content-Type"), p.Status, want)
		}
	}
	if n := number(t, a.pool, `select count(*) from integration.outbox_event where event_type = 'CaseAccepted'`); n != 1 {
		t.Errorf("%d events, want 1", n)
	}
}

// Another tenant neither sees the case nor gets the answer that was given for its key.
func TestTenants(t *testing.T) {
	a := newAPI(t)
	a.post("/cases", `{"caseId": "CASE-1"}`)
	a.post("/cases/CASE-1/accept", ``, "Idempotency-Key", "k1")
	for tenant, want := range map[string]int{"other": 404, "": 401, "no good": 401} {
		answer, body := a.post("/cases/CASE-1/accept", ``, "Idempotency-Key", "k1", tenantHeader, tenant)
		if answer.StatusCode != want {
			t.Errorf("tenant %q: %d %s, want %d", tenant, answer.StatusCode, body, want)
		}
	}
}

func TestSubmit(t *testing.T) {
	a := newAPI(t)
	for _, c := range []struct {
		name, body string
		status     int
		says       string
	}{
		{"a case", `{"caseId": "CASE-1"}`, 201, `"version":1`},
		{"its name is taken", `{"caseId": "CASE-1"}`, 409, "CASE_EXISTS"},
		{"without a name", ``, 201, `"caseId":"CASE-`},
		{"all that is wrong", `{"caseId": "CASE/1", "subject": "` + strings.Repeat("x", 1001) + `"}`, 400, "a slash; subject may"},
		{"too big", `{"subject": "` + strings.Repeat("x", maxBody) + `"}`, 400, "more than 65536 bytes"},
		{"two objects", `{} {}`, 400, "goes on after its end"},
	} {
		answer, body := a.post("/cases", c.body)
		if answer.StatusCode != c.status || !strings.Contains(body, c.says) {
			t.Errorf("%s: %d %s, want %d and %q", c.name, answer.StatusCode, body, c.status, c.says)
		}
	}
	if n := number(t, a.pool, `select count(*) from integration.outbox_event`); n != 2 {
		t.Errorf("%d events, want 2", n)
	}
}

// A transaction that fails at its last moment leaves nothing behind, not even its key: the same request is then the first.
func TestRollback(t *testing.T) {
	a := newAPI(t)
	a.post("/cases", `{"caseId": "CASE-1"}`)
	a.beforeCommit = func() error { return errors.New("the disk is full") }
	for path, body := range map[string]string{"/cases/CASE-1/accept": ``, "/cases": `{"caseId": "CASE-2"}`} {
		if answer, body := a.post(path, body, "Idempotency-Key", "k1"); answer.StatusCode != 500 || strings.Contains(body, "disk") {
			t.Errorf("%s: %d %s, want 500 and no detail", path, answer.StatusCode, body)
		}
	}
	const left = `select (select count(*) from integration.outbox_event) + (select count(*) from integration.outbox_idempotency)
		+ (select count(*) from case_core.case_audit_log) + (select count(*) from case_core.case_file where status = 'SUBMITTED')`
	if n := number(t, a.pool, left); n != 3 { // of CASE-1: the event, the line in the audit log, the case
		t.Errorf("%d rows are there, want 3", n)
	}
	a.beforeCommit = func() error { return nil }
	if answer, body := a.post("/cases/CASE-1/accept", ``, "Idempotency-Key", "k1"); answer.StatusCode != 200 {
		t.Errorf("once more: %d %s, want 200", answer.StatusCode, body)
	}
}

// Many officers accept a case at once, some with the same key: one accepts it, and one event tells of it.
func TestOneOfManyAccepts(t *testing.T) {
	a := newAPI(t)
	a.post("/cases", `{"caseId": "CASE-1"}`)
	const officers = 12
	statuses := make([]int, officers)
	var asking sync.WaitGroup
	for i := range officers {
		asking.Go(func() {
			c := &client{url: a.url}
			r, err := c.insist(context.Background(), request{"/cases/CASE-1/accept", fmt.Sprint("k", i/3), ``})
			if err != nil {
				t.Error(err)
			}
			statuses[i] = r.status
		})
	}
	asking.Wait()
	count := map[int]int{}
	for _, status := range statuses {
		count[status]++
	}
	if count[200] != 3 || count[409] != officers-3 { // the three that share a key share the answer
		t.Errorf("answers: %v, want 3 × 200 and %d × 409", count, officers-3)
	}
	if n := number(t, a.pool, `select count(*) from integration.outbox_event where event_type = 'CaseAccepted'`); n != 1 {
		t.Errorf("%d events, want 1", n)
	}
}

// The log takes an event that says the same once, whoever writes it: a script that tells of an accepted case again is refused,
// and a service that would do so rolls back.
func TestSaidOnce(t *testing.T) {
	a := newAPI(t)
	a.post("/cases", `{"caseId": "CASE-1"}`)
	const said = `insert into integration.outbox_event (topic_name, event_type, dedup_key)
		values ('reg.case.lifecycle.v1', 'CaseAccepted', 'CaseAccepted/CASE-1/2')`
	if _, err := a.pool.Exec(t.Context(), said); err != nil {
		t.Fatal(err)
	}
	if answer, _ := a.post("/cases/CASE-1/accept", ``, "Idempotency-Key", "k1"); answer.StatusCode != 500 {
		t.Errorf("status %d, want 500: the event was told already", answer.StatusCode)
	}
	if got := text(t, a.pool, `select status from case_core.case_file`); got != "SUBMITTED" {
		t.Errorf("the case is %s, want it rolled back", got)
	}
}

// An event that would break its contract is not written, and the change is not made.
func TestContractAtTheSource(t *testing.T) {
	a := newAPI(t)
	tx, err := a.pool.Begin(t.Context())
	must(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	bad := caseAccepted{CaseID: "CASE-1", TenantID: "registry", Status: "REJECTED", Version: 2, AcceptedBy: "a"}
	_, err = a.box.Enqueue(t.Context(), outbox.Pgx(tx), bad.event())
	var invalid *outbox.InvalidError
	if !errors.As(err, &invalid) || invalid.Problems[0].Field != "Payload/status" {
		t.Errorf("error = %v, want a breach at Payload/status", err)
	}
}
