package main

import (
	"database/sql"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/examples/linkostar/platform"
	"github.com/pillarbox-dev/pillarbox/ops"
	"github.com/pillarbox-dev/pillarbox/relay"
)

// Each answer of a supplier ends as the platform says, in the platform's own row.
func TestAnswers(t *testing.T) {
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	cut := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	late := func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // the server then sees that the sender has given up
		<-r.Context().Done()
	}
	once := func(first http.HandlerFunc) http.HandlerFunc {
		var did atomic.Bool
		return func(w http.ResponseWriter, r *http.Request) {
			if !did.Swap(true) {
				first(w, r)
			}
		}
	}
	for _, test := range []struct {
		name     string
		kind     platform.Kind
		answer   http.HandlerFunc
		attempts int
		status   string
		code     string
	}{
		{"200", platform.HubKind, status(200), 1, "SYNCED", ""},
		{"202", platform.ActivationKind, status(202), 1, "SENT", ""},
		{"204", platform.HubKind, status(204), 1, "SYNCED", ""},
		{"400", platform.HubKind, status(400), 1, "DEAD", "HTTP_400"},
		{"401", platform.HubKind, status(401), 1, "DEAD", "HTTP_401"},
		{"404", platform.ActivationKind, status(404), 1, "DEAD", "HTTP_404"},
		{"402 for an activation", platform.ActivationKind, status(402), 1, "REJECTED_BALANCE", "REJECTED_BALANCE"},
		{"402 for a hub", platform.HubKind, status(402), 1, "DEAD", "HTTP_402"},
		{"500 once", platform.HubKind, once(status(500)), 2, "SYNCED", ""},
		{"409 once", platform.HubKind, once(status(409)), 2, "SYNCED", ""},
		{"cut once", platform.ActivationKind, once(cut), 2, "SENT", ""},
		{"500", platform.HubKind, status(500), 8, "DEAD", "EXHAUSTED"},
		{"503", platform.ActivationKind, status(503), 8, "DEAD", "EXHAUSTED"},
		{"cut", platform.HubKind, cut, 8, "DEAD", "EXHAUSTED"},
		{"too late", platform.HubKind, late, 8, "DEAD", "EXHAUSTED"},
		{"nobody listens", platform.HubKind, nil, 8, "DEAD", "EXHAUSTED"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			url := nobody(t)
			if test.answer != nil {
				url = serve(t, func(w http.ResponseWriter, r *http.Request) {
					if strings.HasSuffix(r.URL.Path, "/"+string(test.kind)) { // a device is always taken
						test.answer(w, r)
					}
				})
			}
			l := newLab(t, retryConfig{Base: 2 * time.Millisecond}, 200*time.Millisecond, url)
			l.tell(test.kind)
			table := "hub_instance"
			if test.kind == platform.ActivationKind {
				table = "device_activation_event"
			}
			if code := l.becomes(table, test.status); code != test.code {
				t.Errorf("the code is %q, want %q", code, test.code)
			}
			query := `select d.attempt_count from outbox_delivery d join outbox_event e on e.seq = d.seq where e.aggregate_type = ?1`
			var attempts int
			must(t, l.db.QueryRowContext(t.Context(), query, table).Scan(&attempts))
			if attempts != test.attempts {
				t.Errorf("%d attempts, want %d", attempts, test.attempts)
			}
		})
	}
}

// After attempt n a row is FAILED and due in base × 2^n, until the eighth.
func TestRetryDelays(t *testing.T) {
	l := newLab(t, retryConfig{Base: 3 * time.Millisecond}, time.Second, serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
	}))
	l.tell(platform.HubKind)
	l.becomes("hub_instance", "DEAD")
	l.mu.Lock()
	defer l.mu.Unlock()
	var got []string
	for _, row := range l.settled {
		if row.Attempted {
			got = append(got, fmt.Sprint(row.Attempts, " ", row.Status, " ", row.NextIn))
		}
	}
	want := []string{"1 FAILED 6ms", "2 FAILED 12ms", "3 FAILED 24ms", "4 FAILED 48ms", "5 FAILED 96ms", "6 FAILED 192ms",
		"7 FAILED 384ms", "8 QUARANTINED 0s"}
	if !slices.Equal(got, want) {
		t.Errorf("attempts: got\n%q\nwant\n%q", got, want)
	}
}

// An operator retries what is DEAD, when the supplier has mended its side.
func TestOperatorRetries(t *testing.T) {
	var mended atomic.Bool
	l := newLab(t, testRetry, time.Second, serve(t, func(w http.ResponseWriter, _ *http.Request) {
		if !mended.Load() {
			w.WriteHeader(http.StatusUnprocessableEntity)
		}
	}))
	l.tell(platform.HubKind)
	l.becomes("hub_instance", "DEAD")
	mended.Store(true)
	operator, err := ops.New(l.db.DB, l.db.dialect, l.db.schemaName())
	must(t, err)
	page, err := operator.List(t.Context(), ops.Filter{Statuses: []relay.Status{relay.StatusQuarantined}}, ops.Page{})
	must(t, err)
	if len(page.Deliveries) != 1 {
		t.Fatalf("the operator sees %d quarantined deliveries, want 1", len(page.Deliveries))
	}
	seen := page.Deliveries[0]
	target := ops.Target{Destination: seen.Destination, Seq: seen.Seq, Version: seen.Version}
	_, err = operator.Retry(t.Context(), target, ops.Action{By: "me", Reason: "mended"})
	must(t, err)
	eventually(t, "the row is SYNCED", func() bool {
		var status string
		must(t, l.db.QueryRowContext(t.Context(), "select sync_status from hub_instance").Scan(&status))
		return status == "SYNCED"
	})
}

// A transaction with an error leaves nothing: no row, no event, and no wake-up.
func TestRolledBack(t *testing.T) {
	dir := t.TempDir()
	db, err := openDatabase(t.Context(), filepath.Join(dir, "platform.db"))
	must(t, err)
	t.Cleanup(func() { must(t, db.Close()) })
	woken := 0
	l := &lab{T: t, db: db, supplier: newUUID()}
	l.service, err = newService(db, seams{}, func() { woken++ })
	must(t, err)
	for name, change := range map[string]func(tx *sql.Tx) error{
		"the customer changes their mind": func(tx *sql.Tx) error {
			must(t, l.service.RegisterHub(t.Context(), tx, platform.Hub{UUID: newUUID(), SupplierUUID: l.supplier, TenantUUID: tenants[0],
				BundleUUID: newUUID(), Identifier: "hub-1", Type: "OPEN", Metadata: "{}", Supplier: "acme"}))
			return errChangedMind
		},
		"there is no such device": func(tx *sql.Tx) error {
			return l.service.Activate(t.Context(), tx, newUUID(), newUUID())
		},
		"metadata is no JSON": func(tx *sql.Tx) error {
			return l.service.RegisterHub(t.Context(), tx, platform.Hub{UUID: newUUID(), Metadata: "{"})
		},
		"no such type of hub": func(tx *sql.Tx) error {
			return l.service.RegisterHub(t.Context(), tx, platform.Hub{UUID: newUUID(), Type: "HALF", Metadata: "{}"})
		},
	} {
		if err := l.service.Transact(t.Context(), change); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	l.tell(platform.HubKind)
	var hubs, events int
	must(t, db.QueryRowContext(t.Context(), "select (select count(*) from hub_instance), (select count(*) from outbox_event)").
		Scan(&hubs, &events))
	if hubs != 1 || events != 1 || woken != 1 {
		t.Errorf("%d hubs, %d events, woken %d times; want 1 of each", hubs, events, woken)
	}
}
