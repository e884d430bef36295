package cli

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pillarbox-dev/pillarbox/internal/pgtest"
	"github.com/pillarbox-dev/pillarbox/outbox"
	"github.com/pillarbox-dev/pillarbox/store/sqlite"
)

// Each thing that goes wrong at the start gives one clear message, with what to do.
func TestFirstMistakes(t *testing.T) {
	const destination = "destinations: {a: {http: {url: https://a.example}}}\n"
	migrated := filepath.Join(t.TempDir(), "box.db")
	empty := pgtest.Database(t)
	sqliteFile := func(rest string) string {
		return writeFile(t, "pillarbox.yaml", fmt.Sprintf("database: {url: %q}\n%s", "sqlite://"+migrated, rest))
	}
	must(t, "migrate", "-c", sqliteFile(destination))
	for name, tt := range map[string]struct {
		command, file string
		want          []string
	}{
		"no configuration": {"run", filepath.Join(t.TempDir(), "pillarbox.yaml"), []string{
			"pillarbox.yaml: no such file or directory", "write one with 'pillarbox init', or name another with -c"}},
		"an unknown key": {"run", sqliteFile("destinations: {a: {htp: {url: https://a.example}, http: {url: https://a.example}}}\n"), []string{
			`pillarbox.yaml:2:20: unknown key "htp" in destinations.a: did you mean "http"?`}},
		"a lease shorter than the delivery timeout": {"run", sqliteFile("relay: {lease: 5s}\n" + destination), []string{
			"pillarbox.yaml:2:16: destinations.a: timeout 10s does not fit in the lease of 5s", "or the lease to at least 15s"}},
		"a missing secret file": {"check", sqliteFile("destinations: {a: {http: {url: http://127.0.0.1:1, allow_private: true, " +
			"signature: {scheme: sha256-hex, secret_file: /nowhere/secret}}}}\n"), []string{
			"secret_file: open /nowhere/secret: no such file or directory", "mount it and let the relay's user read it"}},
		"an unreachable PostgreSQL": {"run", writeFile(t, "pillarbox.yaml",
			fmt.Sprintf("database: {url: postgres://app@%s/app}\n%s", unusedAddress(t), destination)), []string{
			"connection refused", "the database cannot be reached: see that it runs, and that host, port and firewall are right"}},
		"an unreachable PostgreSQL, asked for its status": {"status", writeFile(t, "pillarbox.yaml",
			fmt.Sprintf("database: {url: postgres://app@%s/app}\n%s", unusedAddress(t), destination)), []string{
			"connection refused", "see that the database runs, and that its address, user and password are right"}},
		"no SQLite file": {"run", writeFile(t, "pillarbox.yaml", "database: {url: sqlite:///nowhere/box.db}\n"+destination), []string{
			"/nowhere", "the folder does not exist"}},
		"a PostgreSQL that was never migrated": {"run", writeFile(t, "pillarbox.yaml",
			fmt.Sprintf("database: {url: %q}\n%s", empty, destination)), []string{
			"the outbox tables are not up to date", "run `pillarbox migrate`"}},
		"a PostgreSQL that was never migrated, asked for its status": {"status", writeFile(t, "pillarbox.yaml",
			fmt.Sprintf("database: {url: %q}\n%s", empty, destination)), []string{
			"the outbox tables are not up to date", "run `pillarbox migrate`"}},
		"an SQLite file that was never migrated": {"run", writeFile(t, "pillarbox.yaml",
			fmt.Sprintf("database: {url: %q}\n%s", "sqlite://"+emptyFile(t), destination)), []string{
			"the outbox tables are not up to date", "run `pillarbox migrate`"}},
		"an address in use": {"run", sqliteFile("listen: " + usedAddress(t) + "\n" + destination), []string{
			"address already in use", "choose another address with listen, or stop who has it"}},
		"an unknown destination": {"pause a --reason test", sqliteFile(destination), []string{
			"pause a: no relay has worked on this destination yet", "check its name with `pillarbox status`"}},
		"a missing password file": {"run", writeFile(t, "pillarbox.yaml",
			"database: {url: postgres://app@localhost/app, password_file: /nowhere/password}\n"+destination), []string{
			"database.password_file: open /nowhere/password: no such file or directory", "mount it and let this user read it"}},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, errOut := runCLI(append(strings.Fields(tt.command), "-c", tt.file)...)
			if code != exitFailed {
				t.Errorf("exit status %d, want 1", code)
			}
			for _, want := range tt.want {
				if !strings.Contains(out+errOut, want) {
					t.Errorf("%s%s\nlacks: %s", out, errOut, want)
				}
			}
			if strings.Contains(errOut, "Usage:") || strings.Contains(errOut, "goroutine") || strings.Contains(errOut, "problems\n") {
				t.Errorf("not one message:\n%s", errOut)
			}
		})
	}
}

// Enqueue refuses an invalid event with every problem at once, each with what to do.
func TestEnqueueOfAnInvalidEvent(t *testing.T) {
	file := filepath.Join(t.TempDir(), "box.db")
	must(t, "migrate", "-c", writeFile(t, "pillarbox.yaml",
		fmt.Sprintf("database: {url: %q}\ndestinations: {a: {http: {url: https://a.example}}}\n", "sqlite://"+file)))
	db, err := sqlite.OpenDB(t.Context(), sqlite.Config{Path: file})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	box, err := outbox.New(outbox.SQLite, outbox.Options{})
	if err != nil {
		t.Fatal(err)
	}
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	_, err = box.Enqueue(t.Context(), tx, outbox.Event{Type: "T", Payload: []byte("{")})
	if err == nil {
		t.Fatal("an invalid event was taken")
	}
	for _, want := range []string{"Topic", "Payload"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nsays nothing of %s", err, want)
		}
	}
}

// check tells all problems of all parts at once, and what works.
func TestCheckTellsEverything(t *testing.T) {
	file := writeFile(t, "pillarbox.yaml", fmt.Sprintf(`
database: {url: %q, schema: never}
destinations:
  away:
    http: {url: "http://%s/hook", allow_private: true}
  unsigned:
    http:
      url: http://127.0.0.1:1/hook
      signature: {scheme: sha256-hex, secret_file: /nowhere/secret}
  several:
    http:
      allow_addresses: [127.0.0.1]
      token_file: /nowhere/token
      endpoints:
        one: {url: "http://%s"}
        two: {url: "http://10.1.2.3"}
  table:
    http: {endpoint_table: true}
`, pgtest.Database(t), unusedAddress(t), usedAddress(t)))
	code, out, errOut := runCLI("check", "-c", file)
	if code != exitFailed || errOut != "" {
		t.Errorf("exit status %d, %q, want 1 and all of it on standard output", code, errOut)
	}
	for _, want := range []string{
		"configuration         ok      ",
		"database              NOT OK  postgres://postgres@127.0.0.1",
		"lacks 0001_outbox, 0002_status_view, 0003_consumer, 0004_operations, 0005_shards, 0006_inbox_duplicates: run `pillarbox migrate`",
		"destination away      NOT OK  http, http://127.0.0.1",
		"connection refused",
		"destination unsigned  NOT OK",
		"secret_file: open /nowhere/secret",
		"127.0.0.1 is refused (loopback)",
		"destination several   NOT OK  http, 2 endpoints",
		`endpoint "one": token_file: open /nowhere/token`,
		`endpoint "two": token_file: open /nowhere/token`,
		"10.1.2.3 is refused (private)",
		"destination table     NOT OK  http, endpoints in the table outbox_endpoint",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("check does not tell %q", want)
		}
	}
	if t.Failed() {
		t.Log(out)
	}
}

func TestCheckFindsNothing(t *testing.T) {
	file := writeFile(t, "pillarbox.yaml", fmt.Sprintf(`
database: {url: %q}
destinations: {a: {http: {url: "http://%s", allow_private: true, token: "${TOKEN}"}}}
`, "sqlite://"+filepath.Join(t.TempDir(), "box.db"), usedAddress(t)))
	t.Setenv("TOKEN", "s3cret")
	must(t, "migrate", "-c", file)
	if out := must(t, "migrate", "-c", file); out != "nothing to do: the tables are up to date\n" {
		t.Errorf("a second migrate printed %q", out)
	}
	out := must(t, "check", "-c", file, "--print")
	if strings.Contains(out, "NOT OK") || strings.Contains(out, "problem") {
		t.Errorf("check found problems:\n%s", out)
	}
	if strings.Contains(out, "s3cret") || !strings.Contains(out, "token: (hidden)") {
		t.Errorf("check --print shows a secret, or not the configuration:\n%s", out)
	}
}

// usedAddress is one that somebody listens on; unusedAddress one that nobody does.
func usedAddress(t *testing.T) string {
	t.Helper()
	l := listen(t)
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}

func unusedAddress(t *testing.T) string {
	t.Helper()
	l := listen(t)
	_ = l.Close()
	return l.Addr().String()
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func emptyFile(t *testing.T) string { return writeFile(t, "empty.db", "") }
