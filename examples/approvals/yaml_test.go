package main

import (
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/internal/config"
	"github.com/pillarbox-dev/pillarbox/outbox"
)

// asPillarbox makes the test binary the command pillarbox.
const asPillarbox = "APPROVALS_AS_PILLARBOX"

// The service works with `pillarbox run -c pillarbox.yaml` beside it as with its own relay. It is killed and started again.
func TestPillarboxBeside(t *testing.T) {
	onBoth(t, func(t *testing.T, dialect string) {
		b := newBench(t, dialect, nil)
		b.settings.Relay = false
		service := b.start(serviceRole, b.settings, crash{})
		first := b.pillarbox()
		eventually(t, "events arrive", func() bool {
			return len(b.rows("select event_id from approval_outbox where drained_at is not null")) > 20
		})
		first.kill()
		b.bury()
		last := b.pillarbox()
		b.more(20)
		service.stop()
		b.drained()
		must(t, last.cmd.Process.Signal(syscall.SIGTERM))
		last.ended()
		if code := last.cmd.ProcessState.ExitCode(); code != 0 {
			t.Errorf("pillarbox ended with %d", code)
		}
		b.verdict()
	})
}

// pillarbox starts the command with the example's configuration.
func (b *bench) pillarbox() *process {
	b.Helper()
	database := b.settings.Database
	if b.db.dialect == outbox.SQLite {
		database = (&url.URL{Scheme: "sqlite", Path: database}).String()
	}
	program, err := os.Executable()
	must(b, err)
	cmd := exec.CommandContext(b.Context(), program, "run", "-c", "pillarbox.yaml")
	cmd.Env = append(os.Environ(), asPillarbox+"=1", "APPROVALS_CONTRACTS=contracts", "DATABASE_URL="+database,
		"AUDIT_URL="+b.settings.AuditURL, "AUDIT_TOKEN_FILE="+b.settings.TokenFile, "AUDIT_SECRET_FILE="+b.settings.SecretFile)
	return b.launch("pillarbox", cmd)
}

// The file says what relay.go says.
func TestYAMLIsTheSame(t *testing.T) {
	text, err := os.ReadFile("pillarbox.yaml")
	must(t, err)
	c, err := config.Parse("pillarbox.yaml", text, func(name string) (string, bool) {
		return map[string]string{
			"DATABASE_URL": "postgres://app@localhost/app", "AUDIT_URL": "https://audit.example/events", "AUDIT_TOKEN_FILE": "/run/token",
			"AUDIT_SECRET_FILE": "/run/secret", "APPROVALS_CONTRACTS": "contracts",
		}[name], true
	})
	must(t, err)
	if got := c.Destinations[destinationName].HTTP.Envelope.JQ.Expression; string(got) != adapter {
		t.Errorf("the expression is\n%s\nwant\n%s", got, adapter)
	}
	contracts, err := loadContracts()
	must(t, err)
	want, err := destination(settings{AuditURL: "https://audit.example/events", TokenFile: "/run/token", SecretFile: "/run/secret",
		Lease: 15 * time.Second}, contracts)
	must(t, err)
	got := c.RelayConfig().Destinations[0]
	if got.Concurrency != want.Concurrency || got.CodeOnly != want.CodeOnly || got.Timeout != want.Timeout ||
		got.Breaker != want.Breaker || got.Retry.Base != want.Retry.Base || got.Retry.Max != want.Retry.Max ||
		got.Retry.MaxAttempts != want.Retry.MaxAttempts {
		t.Errorf("the file says\n%+v\nwant\n%+v", got, want)
	}
}

// The dashboard shows the destination, and is at the same address after the process was killed.
func TestDashboard(t *testing.T) {
	b := newBench(t, "sqlite", nil)
	b.settings.Dashboard = true
	socket, address, err := newSocket(t.Context(), "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { socket.Close() })
	for range 2 {
		p := b.launch(serviceRole, self(serviceRole, b.settings, socket))
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address+"/destinations/"+destinationName, nil)
		must(t, err)
		answer, err := (&http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
		must(t, err)
		body, err := io.ReadAll(answer.Body)
		must(t, err)
		answer.Body.Close()
		if answer.StatusCode != http.StatusOK || len(body) == 0 {
			t.Errorf("the dashboard answered %s: %s", answer.Status, body)
		}
		p.kill()
		b.bury()
	}
}
