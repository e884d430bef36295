package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/examples/approvals/approval"
	"github.com/pillarbox-dev/pillarbox/examples/approvals/audit"
	"github.com/pillarbox-dev/pillarbox/internal/pgtest"
	"github.com/pillarbox-dev/pillarbox/outbox"
	"github.com/pillarbox-dev/pillarbox/store/sqlite"
)

// bench is an audit store in the test's process, which outlives every service, and a database.
type bench struct {
	*testing.T
	settings settings
	db       database
	audit    *audit.Server
	store    *sql.DB // of the audit store
	secrets  []string

	processes []*process
}

// databases are the two that the service runs on.
var databases = map[string]func(t *testing.T) string{
	"sqlite":   func(t *testing.T) string { return filepath.Join(t.TempDir(), "approvals.db") },
	"postgres": func(t *testing.T) string { return pgtest.Database(t) },
}

// longLease is not lost on a busy machine: see bury.
const longLease = 30 * time.Second

// newBench stores what is sent to it, or answers with another handler.
func newBench(t *testing.T, dialect string, handler http.Handler) *bench {
	t.Helper()
	dir, token, secret := t.TempDir(), rand.Text(), rand.Text()
	b := &bench{T: t, secrets: []string{token, secret}, settings: settings{
		Database: databases[dialect](t), TokenFile: filepath.Join(dir, "token"), SecretFile: filepath.Join(dir, "secret"),
		Lease: longLease, Heartbeat: 300 * time.Millisecond, Relay: true, Until: time.Now().Add(time.Hour),
		Store: filepath.Join(dir, "audit.db"),
	}}
	must(t, write(b.settings.TokenFile, token))
	must(t, write(b.settings.SecretFile, secret))
	var err error
	b.audit, err = audit.New(t.Context(), b.settings.Store, token, []byte(secret))
	must(t, err)
	t.Cleanup(func() { b.audit.Close() })
	if handler == nil {
		handler = b.audit
	}
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	b.settings.AuditURL = server.URL + "/events"
	b.store, err = sqlite.OpenDB(t.Context(), sqlite.Config{Path: b.settings.Store})
	must(t, err)
	t.Cleanup(func() { b.store.Close() })
	b.db, err = openDatabase(t.Context(), b.settings.Database)
	must(t, err)
	t.Cleanup(func() { b.db.Close() })
	return b
}

// office starts the relay in this process and returns the service, without the workload.
func (b *bench) office() *approval.Service {
	b.Helper()
	c, err := newCarrier(b.Context(), b.db, b.settings, seams{}, slog.New(slog.DiscardHandler))
	must(b, err)
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := c.Run(ctx); err != nil {
			b.Error(err)
		}
	})
	b.Cleanup(func() { stop(); running.Wait(); c.close() })
	service, err := newService(b.db, seams{}, c.Wake)
	must(b, err)
	return service
}

// issued returns the id of an approval that was issued.
func (b *bench) issued(service *approval.Service) string {
	b.Helper()
	a, err := issue(b.Context(), service)
	must(b, err)
	return a.ID
}

// rows returns what a query gives, the columns of a row in one text.
func (b *bench) rows(query string) (all []string) {
	b.Helper()
	rows, err := b.db.QueryContext(b.Context(), query)
	must(b, err)
	defer rows.Close()
	columns, err := rows.Columns()
	must(b, err)
	for rows.Next() {
		values := make([]sql.NullString, len(columns))
		into := make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		must(b, rows.Scan(into...))
		var texts []string
		for _, v := range values {
			texts = append(texts, v.String)
		}
		all = append(all, strings.Join(texts, " "))
	}
	must(b, rows.Err())
	return all
}

// drained waits until the view says that everything is in the audit store.
func (b *bench) drained() {
	b.Helper()
	eventually(b, "everything is drained", func() bool {
		return len(b.rows("select event_id from approval_outbox where drained_at is null")) == 0
	})
}

// bury ends the lease of a relay that was killed.
func (b *bench) bury() {
	b.Helper()
	expired := "update outbox_cursor set lease_expires_at = 0 where lease_owner is not null"
	if b.db.dialect == outbox.Postgres {
		expired = "update outbox_cursor set lease_expires_at = now() where lease_owner is not null"
	}
	_, err := b.db.ExecContext(b.Context(), expired)
	must(b, err)
}

// more waits until n changes more are committed.
func (b *bench) more(n int) {
	b.Helper()
	count := func() (have int) {
		must(b, b.db.QueryRowContext(b.Context(), "select count(*) from approval_change").Scan(&have))
		return have
	}
	before := count()
	eventually(b, fmt.Sprint(n, " changes are committed"), func() bool { return count() >= before+n })
}

// verdict holds the three records against each other when all is drained, and looks at what they say.
func (b *bench) verdict() {
	b.Helper()
	r, chain, err := reckonAll(b.Context(), b.db, b.store)
	must(b, err)
	if !r.Kept() || r.Pending > 0 || r.Quarantined > 0 || r.Delivered == 0 {
		b.Errorf("the reckoning:\n%v", r)
	}
	b.Logf("%d events, %d duplicates absorbed", r.Committed, r.Duplicates)
	if twice := b.rows("select approval_id from approval_change group by approval_id, class having count(*) > 1"); len(twice) > 0 {
		b.Errorf("done twice: %v", twice)
	}
	// Row, history and event say the same.
	if wrong := b.rows(`select a.id from approval a
		where a.version <> (select count(*) from approval_outbox o where o.approval_id = a.id)
		or a.version <> (select count(*) from approval_change c where c.approval_id = a.id)`); len(wrong) > 0 {
		b.Errorf("approvals whose events are not those of their history: %v", wrong)
	}
	b.noSecrets(chain)
}

// noSecrets looks for the credentials where they do not belong.
func (b *bench) noSecrets(chain []audit.Entry) {
	b.Helper()
	places := map[string]string{}
	for i, p := range b.processes {
		places[fmt.Sprint("the log of process ", i)] = p.logged()
	}
	for _, e := range chain {
		places["the chain"] += string(e.Body)
	}
	places["the log"] = strings.Join(b.rows("select payload, headers from outbox_event"), "")
	places["the ledger"] = strings.Join(b.rows("select last_error_code, last_error_message, receipt from outbox_delivery"), "")
	if b.db.dialect == outbox.SQLite {
		file, err := os.ReadFile(b.settings.Database)
		must(b, err)
		places["the database"] = string(file)
	}
	for place, text := range places {
		for _, secret := range b.secrets {
			if strings.Contains(text, secret) {
				b.Errorf("%s holds a credential", place)
			}
		}
	}
}
