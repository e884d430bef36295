package wire

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/internal/config"
	"github.com/pillarbox-dev/pillarbox/internal/pgtest"
	"github.com/pillarbox-dev/pillarbox/outbox"
	"github.com/pillarbox-dev/pillarbox/outbox/schema"
	"github.com/pillarbox-dev/pillarbox/outbox/webhook"
)

// databases are the section database of a configuration, one per store.
func databases(t *testing.T) map[string]string {
	return map[string]string{
		"postgres": fmt.Sprintf("{url: %q, schema: %q}", pgtest.Database(t), `Out "box"`),
		"sqlite":   fmt.Sprintf("{url: %q}", "sqlite://"+filepath.Join(t.TempDir(), "box.db")),
	}
}

func load(t *testing.T, text string, variables map[string]string) *config.Config {
	t.Helper()
	c, err := config.Parse("pillarbox.yaml", []byte(text), func(name string) (string, bool) {
		value, set := variables[name]
		return value, set
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// migrated opens the database after it was migrated.
func migrated(t *testing.T, c *config.Config) *sql.DB {
	t.Helper()
	db, err := OpenDB(t.Context(), c.Database, true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	if _, err := schema.Migrate(t.Context(), db, c.Database.Dialect(), c.Database.SchemaName()); err != nil {
		t.Fatal(err)
	}
	return db
}

func enqueue(t *testing.T, c *config.Config, db *sql.DB, event outbox.Event) {
	t.Helper()
	box, err := outbox.New(c.Database.Dialect(), outbox.Options{Schema: c.Database.SchemaName()})
	if err != nil {
		t.Fatal(err)
	}
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := box.Enqueue(t.Context(), tx, event); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
}

// work runs a process until the receiver has been called.
func work(t *testing.T, c *config.Config, called <-chan string) string {
	t.Helper()
	var log bytes.Buffer
	p, err := NewProcess(t.Context(), c, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	var got string
	select {
	case got = <-called:
	case <-time.After(20 * time.Second):
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if got == "" {
		t.Fatalf("nothing arrived:\n%s", log.String())
	}
	return got
}

// signedReceiver says whom a delivery was for, after it has verified the signature.
func signedReceiver(t *testing.T, secret string) (url string, called <-chan string) {
	calls := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = webhook.VerifyHex([][]byte{[]byte(secret)}, body, r.Header.Get("Pillarbox-Signature"))
		}
		who := r.URL.Path + " " + r.Header.Get("Authorization")
		if err != nil {
			who = err.Error()
		}
		select {
		case calls <- who:
		default:
		}
	}))
	t.Cleanup(server.Close)
	return server.URL, calls
}

// A secret and a token can come from the environment.
func TestSecretsOutOfTheEnvironment(t *testing.T) {
	for name, database := range databases(t) {
		t.Run(name, func(t *testing.T) {
			url, called := signedReceiver(t, "out of the environment")
			c := load(t, fmt.Sprintf(`
database: %s
destinations:
  a:
    http:
      url: %s/hook
      signature: {scheme: sha256-hex, secret: "${SECRET}"}
      token: ${TOKEN}
      allow_private: true
`, database, url), map[string]string{"SECRET": "out of the environment", "TOKEN": "t0ken"})
			enqueue(t, c, migrated(t, c), outbox.Event{Topic: "a", Type: "T", Payload: []byte(`{}`)})
			if got, want := work(t, c, called), "/hook Bearer t0ken"; got != want {
				t.Errorf("the receiver got %q, want %q", got, want)
			}
		})
	}
}

// Endpoints can be in the table, with their files in the credential folder.
func TestEndpointTable(t *testing.T) {
	for name, database := range databases(t) {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			if err := os.WriteFile(filepath.Join(folder, "acme"), []byte("acme's\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			url, called := signedReceiver(t, "acme's")
			c := load(t, fmt.Sprintf(`
database: %s
destinations:
  a:
    http:
      endpoint_table: true
      credential_folder: %s
      signature: {scheme: sha256-hex}
      allow_private: true
`, database, folder), nil)
			db := migrated(t, c)
			if _, err := db.ExecContext(t.Context(), `insert into outbox_endpoint (destination, endpoint, url, secret_file) values ('a', 'acme', '`+
				url+`/acme', 'acme')`); err != nil {
				t.Fatal(err)
			}
			for _, f := range Check(t.Context(), c) {
				if len(f.Problems) > 0 {
					t.Errorf("check of %s: %v", f.Part, f.Problems)
				}
			}
			enqueue(t, c, db, outbox.Event{Topic: "a", Key: "acme", Type: "T", Payload: []byte(`{}`)})
			if got, want := work(t, c, called), "/acme "; got != want {
				t.Errorf("the receiver got %q, want %q", got, want)
			}
		})
	}
}

func TestAddressWithAPasswordFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	c := load(t, fmt.Sprintf(`
database: {url: "postgres://app@db.example:5433/app?sslmode=require", password_file: %q}
destinations: {a: {http: {url: "https://a.example"}}}
`, file), nil)
	if _, err := address(c.Database); err == nil || !strings.Contains(err.Error(), "mount it") {
		t.Errorf("a missing file: %v, want a hint", err)
	}
	for text, want := range map[string]string{
		"p@ss/w:rd#?\n": "postgres://app:p%40ss%2Fw%3Ard%23%3F@db.example:5433/app?sslmode=require",
		"plain\t":       "postgres://app:plain@db.example:5433/app?sslmode=require",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := address(c.Database); err != nil || got != want {
			t.Errorf("address = %q, %v, want %q", got, err, want)
		}
	}
	if err := os.WriteFile(file, []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := address(c.Database); err == nil || !strings.Contains(err.Error(), "is empty") {
		t.Errorf("an empty file: %v, want it refused", err)
	}
}

// The errors of a connection that fails never show the password.
func TestErrorsHideThePassword(t *testing.T) {
	for _, url := range []string{"postgres://app:${SECRET}@127.0.0.1:1/app", "postgres://app:${SECRET}@127.0.0.1:1/app?sslmode=nonsense"} {
		c := load(t, fmt.Sprintf("database: {url: %q}\ndestinations: {a: {http: {url: \"https://a.example\"}}}\n", url),
			map[string]string{"SECRET": "hunter2"})
		_, _, err := OpenStore(t.Context(), c.Database)
		_, other := OpenDB(t.Context(), c.Database, true)
		if err == nil || other == nil {
			t.Fatalf("%s opened", url)
		}
		for _, err := range []error{err, other} {
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the error shows the password: %v", err)
			}
		}
	}
}

func TestOwnersDiffer(t *testing.T) {
	if a, b := defaultOwner(), defaultOwner(); a == b {
		t.Errorf("two owners are both %s", a)
	}
}
