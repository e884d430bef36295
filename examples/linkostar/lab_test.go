package main

import (
	"context"
	"database/sql"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/examples/linkostar/platform"
	"github.com/pillarbox-dev/pillarbox/relay"
)

// lab is a platform with its relay in this process, and one supplier that a test plays itself.
type lab struct {
	*testing.T
	db       database
	service  *platform.Platform
	supplier string // its UUID

	mu      sync.Mutex
	settled []relay.Row
}

const (
	labSecret = "It's a Secret to Everybody"
	labToken  = "t0ken"
)

// newLab answers with the handler. The relay stops with the test.
func newLab(t *testing.T, retry retryConfig, timeout time.Duration, url string) *lab {
	t.Helper()
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		must(t, os.WriteFile(path, []byte(text+"\n"), 0o600))
		return path
	}
	c := config{
		Suppliers: map[string]supplierConfig{"acme": {
			UUID: newUUID(), HubRegistrationURL: url + "/hub", DeviceRegistrationURL: url + "/device", ActivationURL: url + "/activation",
			SecretFile: file("secret", labSecret), TokenFile: file("token", labToken),
		}},
		Registration: registrationConfig{Retry: retry, Timeout: timeout, AllowAddresses: []string{"127.0.0.1"}},
	}
	c.setDefaults()
	l := &lab{T: t, supplier: c.Suppliers["acme"].UUID}
	var err error
	l.db, err = openDatabase(t.Context(), filepath.Join(dir, "platform.db"))
	must(t, err)
	t.Cleanup(func() { must(t, l.db.Close()) })
	carrier, err := newCarrier(t.Context(), l.db, c, seams{onSettle: l.note}, "", slog.New(slog.DiscardHandler))
	must(t, err)
	stop := carrier.start(t.Context())
	t.Cleanup(func() { must(t, stop()) })
	l.service, err = newService(l.db, seams{}, carrier.relay.Wake)
	must(t, err)
	return l
}

// note remembers the rows of each settle.
func (l *lab) note(hook platform.OnSettle) platform.OnSettle {
	return func(ctx context.Context, exec platform.Exec, destination string, s relay.Settlement) error {
		l.mu.Lock()
		l.settled = append(l.settled, s.Rows...)
		l.mu.Unlock()
		return hook(ctx, exec, destination, s)
	}
}

// tell registers a hub, or a device that is activated, in one transaction.
func (l *lab) tell(kind platform.Kind) {
	l.Helper()
	must(l, l.service.Transact(l.Context(), func(tx *sql.Tx) error {
		if kind == platform.HubKind {
			return l.service.RegisterHub(l.Context(), tx, platform.Hub{UUID: newUUID(), SupplierUUID: l.supplier, TenantUUID: tenants[0],
				BundleUUID: newUUID(), Identifier: "hub-1", Type: "CLOSED", Metadata: `{"firmware":"4.2"}`, Supplier: "acme"})
		}
		device := newUUID()
		err := l.service.RegisterDevice(l.Context(), tx, platform.Device{UUID: device, VersionUUID: newUUID(), TenantUUID: tenants[0],
			SupplierUUID: l.supplier, MACAddress: "02:00:00:00:00:01", Source: platform.TenantCreate, Supplier: "acme"})
		if err != nil {
			return err
		}
		return l.service.Activate(l.Context(), tx, newUUID(), device)
	}))
}

// becomes waits for the status of the one row of a table.
func (l *lab) becomes(table, want string) (code string) {
	l.Helper()
	var status string
	eventually(l, "the row is "+want, func() bool {
		query := "select sync_status, coalesce(sync_error, '') from " + table
		must(l, l.db.QueryRowContext(l.Context(), query).Scan(&status, &code))
		if slices.Contains([]string{"DEAD", "SYNCED", "SENT", "REJECTED_BALANCE"}, status) && status != want {
			l.Fatalf("the row is %s (%s), want %s", status, code, want)
		}
		return status == want
	})
	return code
}

func serve(t *testing.T, handler http.HandlerFunc) string {
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.URL
}

// nobody returns a URL where nobody listens.
func nobody(t *testing.T) string {
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	defer listener.Close()
	return "http://" + listener.Addr().String()
}
