// Package recipes runs the programs of docs/recipes.md as they stand there, with the runtimes of their languages.
package recipes

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/pillarbox-dev/pillarbox/internal/pgtest"
	"github.com/pillarbox-dev/pillarbox/outbox/schema"
)

// What the programs need from the registries of their languages, and the folder in which it is kept.
const (
	cache         = "../../.cache/recipes"
	jdbcDriver    = "42.7.11"
	pgPackage     = "pg@8.23.1"
	psycopgModule = "psycopg[binary]==3.3.9"
)

// snippets returns the blocks of a language on the page.
func snippets(t *testing.T, language string) []string {
	t.Helper()
	page, err := os.ReadFile("../../docs/recipes.md")
	must(t, err)
	var all []string
	for i, part := range strings.Split(string(page), "\n```") {
		if block, ok := strings.CutPrefix(part, language+"\n"); ok && i%2 == 1 {
			all = append(all, block+"\n")
		}
	}
	if len(all) == 0 {
		t.Fatalf("docs/recipes.md has no block of %s", language)
	}
	return all
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newDatabase has the outbox, and a service's table with CASE-1.
func newDatabase(t *testing.T) (string, *pgxpool.Pool) {
	t.Helper()
	database := pgtest.Database(t)
	pool, err := pgxpool.New(t.Context(), database)
	must(t, err)
	t.Cleanup(pool.Close)
	db := stdlib.OpenDBFromPool(pool)
	t.Cleanup(func() { db.Close() })
	_, err = schema.Migrate(t.Context(), db, schema.Postgres, "integration")
	must(t, err)
	_, err = pool.Exec(t.Context(), "create table cases (id text primary key, status text not null, version bigint not null);"+
		"insert into cases values ('CASE-1', 'NEW', 3)")
	must(t, err)
	return database, pool
}

// wantEvents compares the log, and the state of the case.
func wantEvents(t *testing.T, pool *pgxpool.Pool, payload string, events int) {
	t.Helper()
	const event = `select concat_ws('|', topic_name, partition_key, aggregate_type, aggregate_id, aggregate_version, event_type,
	  event_version, payload, headers::jsonb) from integration.outbox_event order by seq`
	rows, err := pool.Query(t.Context(), event)
	must(t, err)
	defer rows.Close()
	n := 0
	for ; rows.Next(); n++ {
		var got string
		must(t, rows.Scan(&got))
		if want := fmt.Sprintf(`cases|CASE-1|Case|CASE-1|%d|CaseAccepted|1|%s|{"correlationId": "c-1"}`, 4+n, payload); got != want {
			t.Errorf("event %d is\n%s\nwant\n%s", n, got, want)
		}
	}
	must(t, rows.Err())
	if n != events {
		t.Errorf("there are %d events, want %d", n, events)
	}
	var state string
	must(t, pool.QueryRow(t.Context(), "select concat_ws('|', status, version) from cases").Scan(&state))
	if want := fmt.Sprintf("ACCEPTED|%d", 3+events); state != want {
		t.Errorf("the case is %s, want %s", state, want)
	}
}

func TestSQL(t *testing.T) {
	database, pool := newDatabase(t)
	blocks := snippets(t, "sql")
	script := func(sql string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "psql", "-X", "-q", "-At", "-v", "ON_ERROR_STOP=1", "-d", database)
		cmd.Stdin = strings.NewReader(sql)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("psql: %v\n%s", err, out)
		}
		return strings.TrimSpace(string(out))
	}
	script(blocks[0])
	wantEvents(t, pool, `{"caseId" : "CASE-1", "status" : "ACCEPTED"}`, 1)
	for _, want := range []string{"FIRST", "DUPLICATE"} {
		if got := script(blocks[1]); got != "0198c0de-0000-7000-8000-000000000001|"+want {
			t.Errorf("the inbox answers %q, want %s", got, want)
		}
	}
	if got := script(strings.Replace(blocks[1], "CASE-1", "CASE-2", 1)); !strings.HasSuffix(got, "|DIFFERENT") {
		t.Errorf("with another body the inbox answers %q", got)
	}
}

// testProgram runs a program with a case, again, and with a case that there is not: then nothing is left of its transaction.
func testProgram(t *testing.T, program func(ctx context.Context, database, id string) *exec.Cmd) {
	t.Helper()
	database, pool := newDatabase(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for range 2 {
		if out, err := program(ctx, database, "CASE-1").CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	out, err := program(ctx, database, "CASE-9").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "there is no case CASE-9") {
		t.Errorf("with a case that there is not: got %v\n%s", err, out)
	}
	wantEvents(t, pool, `{"caseId":"CASE-1","amount":12.50}`, 2)
}

// write puts a program into a folder.
func write(t *testing.T, folder, name, text string) string {
	t.Helper()
	file := filepath.Join(folder, name)
	must(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

// fetch runs a package manager unless what it brings is there already.
func fetch(t *testing.T, file string, command ...string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(cache, file))
	must(t, err)
	if _, err := os.Stat(path); err == nil {
		return path
	}
	must(t, os.MkdirAll(cache, 0o755))
	cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
	cmd.Dir = cache
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s\nthe recipe needs it; see .ci/run for what to install", command, err, out)
	}
	return path
}

func TestJava(t *testing.T) {
	driver := fetch(t, "postgresql-"+jdbcDriver+".jar", "mvn", "-q", "-B", "dependency:copy",
		"-Dartifact=org.postgresql:postgresql:"+jdbcDriver, "-DoutputDirectory=.")
	source := write(t, t.TempDir(), "AcceptCase.java", snippets(t, "java")[0])
	testProgram(t, func(ctx context.Context, database, id string) *exec.Cmd {
		u, err := url.Parse(database)
		must(t, err)
		cmd := exec.CommandContext(ctx, "java", "-cp", driver, source, id) // Java runs a single source file as it is
		cmd.Env = append(os.Environ(), "JDBC_URL=jdbc:postgresql://"+u.Host+u.Path+"?user=postgres")
		return cmd
	})
}

func TestNode(t *testing.T) {
	modules := fetch(t, "node/node_modules/pg", "npm", "install", "--prefix", "node", "--ignore-scripts", "--no-audit", "--no-fund", pgPackage)
	folder := t.TempDir()
	must(t, os.Symlink(filepath.Dir(modules), filepath.Join(folder, "node_modules")))
	program := write(t, folder, "accept.mjs", snippets(t, "js")[0])
	testProgram(t, func(ctx context.Context, database, id string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, "node", program, id)
		cmd.Env = append(os.Environ(), "DATABASE_URL="+database)
		return cmd
	})
}

func TestPython(t *testing.T) {
	modules := fetch(t, "python/psycopg", "python3", "-m", "pip", "install", "-q", "--disable-pip-version-check", "--target", "python",
		psycopgModule)
	program := write(t, t.TempDir(), "accept.py", snippets(t, "python")[0])
	testProgram(t, func(ctx context.Context, database, id string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, "python3", program, id)
		cmd.Env = append(os.Environ(), "DATABASE_URL="+database, "PYTHONPATH="+filepath.Dir(modules))
		return cmd
	})
}
