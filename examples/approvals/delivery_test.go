package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/examples/approvals/approval"
	"github.com/pillarbox-dev/pillarbox/examples/approvals/audit"
	"github.com/pillarbox-dev/pillarbox/ops"
	"github.com/pillarbox-dev/pillarbox/outbox/webhook"
)

func onBoth(t *testing.T, test func(t *testing.T, dialect string)) {
	for dialect := range databases {
		t.Run(dialect, func(t *testing.T) { t.Parallel(); test(t, dialect) })
	}
}

// While the audit store is down, approvals are issued and revoked as ever, and no attempt is charged. When it is up again it gets
// everything, oldest first.
func TestAuditOutageBlocksNothing(t *testing.T) {
	onBoth(t, func(t *testing.T, dialect string) {
		b := newBench(t, dialect, nil)
		b.audit.Tell(audit.Control{Down: new(true)})
		service := b.office()
		for range 10 {
			_, err := service.Revoke(t.Context(), b.issued(service), approval.Act{Actor: "user:ann"})
			must(t, err)
		}
		if waiting := b.rows("select event_id from approval_outbox where drained_at is null and attempts = 0"); len(waiting) != 20 {
			t.Errorf("%d of 20 events wait uncharged", len(waiting))
		}
		b.audit.Tell(audit.Control{Down: new(false)})
		b.drained()
		b.verdict()
		b.oldestFirst()
	})
}

// An event that fails holds the younger ones back, also those of other approvals.
func TestOldestFirst(t *testing.T) {
	onBoth(t, func(t *testing.T, dialect string) {
		var asked atomic.Int64
		var b *bench
		b = newBench(t, dialect, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if asked.Add(1) <= 3 {
				w.WriteHeader(http.StatusInternalServerError)
				return
			}
			b.audit.ServeHTTP(w, r)
		}))
		service := b.office()
		for range 5 {
			b.issued(service)
		}
		b.drained()
		b.verdict()
		b.oldestFirst()
	})
}

// oldestFirst checks that the chain has the order of the log. It holds where one writer works, as it does here.
func (b *bench) oldestFirst() {
	b.Helper()
	chain, err := b.audit.Chain(b.Context())
	must(b, err)
	var got []string
	for _, e := range chain {
		got = append(got, e.EventID)
	}
	if want := b.rows("select event_id from outbox_event order by seq"); !slices.Equal(got, want) {
		b.Errorf("chained\n%v\nwant the order of the log\n%v", got, want)
	}
}

// 202 accepted and, after a lost answer, 200 duplicate both count as drained.
func TestAcceptedAndDuplicateAreDrained(t *testing.T) {
	onBoth(t, func(t *testing.T, dialect string) {
		b := newBench(t, dialect, nil)
		b.audit.Tell(audit.Control{LoseEvery: new(3)})
		service := b.office()
		for range 8 {
			b.issued(service)
		}
		b.drained()
		receipts := map[string]int{}
		for _, receipt := range b.rows("select receipt from outbox_delivery where status = 'PUBLISHED'") {
			receipts[receipt]++
		}
		if receipts["200"] == 0 || receipts["202"] == 0 || receipts["200"]+receipts["202"] != 8 {
			t.Errorf("receipts %v, want eight, 202 and 200 both", receipts)
		}
		b.verdict()
	})
}

// The audit store rotates its token again and again under load, and the mounted file follows later. Nothing is lost, nothing is
// quarantined, and no attempt is charged for it.
func TestRotationUnderLoad(t *testing.T) {
	onBoth(t, func(t *testing.T, dialect string) {
		b := newBench(t, dialect, nil)
		service := b.office()
		writing, stop := context.WithCancel(t.Context())
		var working sync.WaitGroup
		working.Go(func() {
			for writing.Err() == nil {
				b.issued(service)
			}
		})
		for n := range 3 {
			b.more(10)
			token := fmt.Sprintf("rotated-%d-%s", n, b.secrets[0])
			b.secrets = append(b.secrets, token)
			refused := b.rows("select count(*) from approval_outbox where drained_at is null")
			b.audit.Tell(audit.Control{Token: &token})
			b.more(10) // written while the relay's token is refused
			if stuck := b.rows("select count(*) from approval_outbox where drained_at is null"); stuck[0] == "0" {
				t.Errorf("nothing waits for the new token (%v did before)", refused)
			}
			must(t, write(b.settings.TokenFile, token))
		}
		stop()
		working.Wait()
		b.drained()
		if charged := b.rows("select event_id from approval_outbox where attempts > 1"); len(charged) > 0 {
			t.Errorf("%d events were charged for the rotation", len(charged))
		}
		b.verdict()
	})
}

// Of a failure a code is kept, and not a word of what the other side says. The view tells it while it lasts.
func TestOnlyTheCodeIsKept(t *testing.T) {
	onBoth(t, func(t *testing.T, dialect string) {
		var mended atomic.Bool
		b := newBench(t, dialect, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if mended.Load() {
				w.WriteHeader(http.StatusAccepted)
				return
			}
			http.Error(w, "stack trace with a password", http.StatusInternalServerError)
		}))
		id := b.issued(b.office())
		eventually(t, "the failure is seen", func() bool {
			return len(b.rows("select event_id from approval_outbox where last_error is not null")) == 1
		})
		failed := b.rows("select class, approval_id, drained_at is null, last_attempt_at is not null, last_error from approval_outbox")
		if want := []string{"issuance " + id + " 1 1 HTTP_500"}; !slices.Equal(truths(failed), want) {
			t.Errorf("the view says %q, want %q", failed, want)
		}
		if texts := b.rows("select last_error_message from outbox_delivery where last_error_message <> ''"); len(texts) > 0 {
			t.Errorf("kept: %q, want the code alone", texts)
		}
		mended.Store(true)
		b.drained()
		drained := b.rows("select last_error is null, attempts > 1, payload is not null, created_at is not null from approval_outbox")
		if want := []string{"1 1 1 1"}; !slices.Equal(truths(drained), want) {
			t.Errorf("the view says %q, want it drained without an error", drained)
		}
	})
}

// truths writes the booleans of PostgreSQL as SQLite does.
func truths(rows []string) []string {
	for i := range rows {
		rows[i] = strings.ReplaceAll(rows[i], "true", "1")
	}
	return rows
}

// What is refused for good stands in quarantine with its code, and the trail goes on. An event that a script has put into the
// log, and that breaks the contract, is not sent at all.
func TestRefusedForGood(t *testing.T) {
	onBoth(t, func(t *testing.T, dialect string) {
		var sent atomic.Int64
		b := newBench(t, dialect, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if sent.Add(1) == 1 {
				w.WriteHeader(http.StatusUnprocessableEntity)
				return
			}
			w.WriteHeader(http.StatusAccepted)
		}))
		_, err := b.db.ExecContext(t.Context(), `insert into outbox_event (topic_name, partition_key, event_type, schema_ref, payload)
			values ('approval.audit', 'approvals', 'approval.use', 'audit-core.event.v1alpha1', '{"token": "hunter2"}')`)
		must(t, err)
		service := b.office()
		b.issued(service)
		b.issued(service)
		eventually(t, "the second is drained", func() bool {
			return len(b.rows("select event_id from approval_outbox where drained_at is not null")) == 1
		})
		got := b.rows("select status, last_error_code from outbox_status order by seq")
		if want := []string{"QUARANTINED SCHEMA_INVALID", "QUARANTINED HTTP_422", "PUBLISHED "}; !slices.Equal(got, want) {
			t.Errorf("the ledger says %q, want %q", got, want)
		}
		if n := sent.Load(); n != 2 {
			t.Errorf("%d requests, want two", n)
		}
	})
}

// What is sent has exactly the members that the audit store knows, and the payload's own bytes; the id is the Idempotency-Key,
// and the body is signed.
func TestWhatIsSent(t *testing.T) {
	requests := make(chan *http.Request, 1)
	b := newBench(t, "sqlite", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		requests <- r
		w.WriteHeader(http.StatusAccepted)
	}))
	service := b.office()
	a, err := service.Open(t.Context(), approval.Request{ID: "apr-1", Tenant: "acme", Scope: "payments", BindingDigest: digest(),
		Threshold: 1, Lifetime: time.Hour})
	must(t, err)
	_, err = service.Agree(t.Context(), a.ID, approval.Act{Actor: "user:ann", CorrelationID: "c-1"})
	must(t, err)
	r := <-requests
	body, _ := io.ReadAll(r.Body)
	var got map[string]json.RawMessage
	must(t, json.Unmarshal(body, &got))
	row := b.rows("select event_id, payload from outbox_event")[0]
	id, payload, _ := strings.Cut(row, " ")
	var event approval.Event
	must(t, json.Unmarshal([]byte(payload), &event))
	want := map[string]string{
		"id": quoted(id), "type": `"approval.issuance"`, "source": `"approvals"`, "subject": `"approval:apr-1"`, "tenant": `"acme"`,
		"correlation_id": `"c-1"`, "occurred_at": quoted(event.ObservedAt), "data": payload,
	}
	for member := range maps.Keys(want) {
		if string(got[member]) != want[member] {
			t.Errorf("%s is %s, want %s", member, got[member], want[member])
		}
	}
	if len(got) != len(want) || event.EventID != id || r.Header.Get("Idempotency-Key") != id {
		t.Errorf("sent %s with the key %q, want the id %s and eight members", body, r.Header.Get("Idempotency-Key"), id)
	}
	secret, token := b.secrets[1], b.secrets[0]
	if err := webhook.VerifyHex([][]byte{[]byte(secret)}, body, r.Header.Get(audit.SignatureHeader)); err != nil {
		t.Errorf("the signature: %v", err)
	}
	if r.Header.Get("Authorization") != "Bearer "+token {
		t.Error("the token is not that of the file")
	}
}

func quoted(s string) string { return `"` + s + `"` }

// A heartbeat says that there is nothing to report, or how much there was; of nobody, about no approval, signed like all.
func TestHeartbeat(t *testing.T) {
	onBoth(t, func(t *testing.T, dialect string) {
		b := newBench(t, dialect, nil)
		service := b.office()
		look, err := ops.New(b.db.DB, b.db.dialect, b.db.schemaName())
		must(t, err)
		h := heartbeat(200 * time.Millisecond)
		beats := func() (all []approval.Event) {
			chain, err := b.audit.Chain(t.Context())
			must(t, err)
			for _, e := range chain {
				d, err := adapted(e)
				must(t, err)
				if d.Data.EventID != d.ID || d.ID != e.EventID {
					t.Errorf("an entry has the ids %q, %q and %q, want one", d.Data.EventID, d.ID, e.EventID)
				}
				if d.Type == "approval.heartbeat" {
					all = append(all, d.Data)
				}
			}
			return all
		}
		beat := func(n int) {
			eventually(t, fmt.Sprint(n, " heartbeats"), func() bool {
				_, err := look.Beat(t.Context(), h)
				must(t, err)
				return len(beats()) >= n
			})
		}
		beat(1)
		quiet := beats()[0]
		if quiet.Reason != "nothing to report" || quiet.Actor != nil || quiet.Details.ApprovalID != nil ||
			quiet.Details.Counts == nil || quiet.Details.Counts.Events != 0 {
			t.Errorf("%+v, want nothing to report, with counts, of nobody", quiet)
		}
		_, err = service.Revoke(t.Context(), b.issued(service), approval.Act{Actor: "user:ann"})
		must(t, err)
		beat(len(beats()) + 2)
		counted := map[string]int64{}
		for _, e := range beats() {
			for class, n := range e.Details.Counts.ByClass {
				counted[class] += n
			}
		}
		if want := map[string]int64{"issuance": 1, "revocation": 1}; !maps.Equal(counted, want) {
			t.Errorf("counted %v, want %v", counted, want)
		}
		if none := b.rows("select event_id from approval_outbox where class = 'heartbeat' and approval_id is not null"); len(none) > 0 {
			t.Errorf("heartbeats of an approval: %v", none)
		}
		for _, row := range b.rows("select event_id, payload from outbox_event where event_type = 'approval.heartbeat'") {
			id, payload, _ := strings.Cut(row, " ")
			var logged approval.Event
			must(t, json.Unmarshal([]byte(payload), &logged))
			if logged.EventID != id {
				t.Errorf("the payload of heartbeat %s in the log names %q", id, logged.EventID)
			}
		}
		b.drained()
		b.verdict()
	})
}
