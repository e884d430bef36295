package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pillarbox-dev/pillarbox/internal/pgtest"
	"github.com/pillarbox-dev/pillarbox/outbox/schema"
	"github.com/pillarbox-dev/pillarbox/store/postgres"
)

// wantError reports an error that does not say all that is wanted, or that gives the password away.
func wantError(t *testing.T, err error, wants ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one that says %q", wants)
	}
	for _, want := range wants {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not say %q", err, want)
		}
	}
	if strings.Contains(err.Error(), "S3cret") {
		t.Errorf("error %q holds the password", err)
	}
}

func TestConfigProblemsComeAllAtOnce(t *testing.T) {
	_, err := postgres.Open(t.Context(), postgres.Config{URL: " ", Schema: "pg_mine", MaxConns: 1, ConnectTimeout: -1})
	wantError(t, err, "URL is missing: give postgres://", `"pg_mine"`, "max_conns 1 is outside 2 to 10000",
		"connect timeout -1ns is negative")
	_, err = postgres.Open(t.Context(), postgres.Config{URL: "postgres://u:S3cret@host:notaport/db", MaxConns: -3})
	wantError(t, err, "the URL is not one of PostgreSQL", "max_conns -3")
}

func TestOpenSaysWhatToDo(t *testing.T) {
	url := pgtest.Database(t)
	conn := connect(t, url)
	exec(t, conn, "create role app login password 'S3cret'")
	t.Cleanup(func() { exec(t, conn, "drop owned by app; drop role app") })
	as := func(user string) string { return strings.Replace(url, "postgres@", user+"@", 1) }
	open := func(url string) error {
		s, err := postgres.Open(t.Context(), postgres.Config{URL: url})
		if err == nil {
			s.Close()
		}
		return err
	}
	wantError(t, open("postgres://app:S3cret@127.0.0.1:1/db"), "cannot be reached: see that it runs, and that host, port")
	silent, err := net.Listen("tcp", "127.0.0.1:0") // it never answers
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	_, err = postgres.Open(t.Context(), postgres.Config{
		URL: "postgres://app:S3cret@" + silent.Addr().String() + "/db", ConnectTimeout: 100 * time.Millisecond,
	})
	wantError(t, err, "cannot be reached")
	wantError(t, open(strings.Replace(url, "?", "_not?", 1)), "create the database, or correct its name")
	wantError(t, open(as("nobody:S3cret")), "see to the user name, the password and pg_hba.conf")
	wantError(t, open(url), `schema "public" lacks 0001_outbox`, "run `pillarbox migrate`")

	migrate(t, url, "public")
	socket := fmt.Sprintf("host=%s port=%d user=postgres dbname=%s", value[string](t, conn, "show unix_socket_directories"),
		conn.Config().Port, conn.Config().Database)
	if err := open(socket); err != nil {
		t.Errorf("through the Unix socket: %v", err)
	}
	wantError(t, open(as("app:S3cret")), "pillarbox migrate --print-roles")
	grants, err := schema.PrintRoles("public", "", "app", "")
	if err != nil {
		t.Fatal(err)
	}
	exec(t, conn, grants)
	if err := open(as("app")); err != nil {
		t.Errorf("with the printed rights: %v", err)
	}
	exec(t, conn, "revoke update on outbox_cursor from app; revoke select on outbox_event_seq from app")
	wantError(t, open(as("app")), "no UPDATE on public.outbox_cursor", "no SELECT on public.outbox_event_seq", "--print-roles")

	exec(t, conn, "alter sequence outbox_event_seq cache 10")
	exec(t, conn, "alter table outbox_event alter seq set default nextval('outbox_event_seq')")
	wantError(t, open(url), "alter sequence \"public\".\"outbox_event_seq\" increment by 1 cache 1 no cycle",
		"alter table \"public\".\"outbox_event\" alter seq set default")
	exec(t, conn, "alter sequence outbox_event_seq cache 1")
	exec(t, conn, `alter table outbox_event alter seq set default
		nextval(case when pg_current_xact_id() is not null then 'outbox_event_seq'::regclass end)`)

	// A newer release has migrated: nothing that this one needs was taken away.
	exec(t, conn, "insert into outbox_migration (version) values (9999)")
	if err := open(url); err != nil {
		t.Errorf("with a newer migration: %v", err)
	}
}

func TestHintsOfCallsThatFail(t *testing.T) {
	url := database(t)
	store := open(t, postgres.Config{URL: url})
	lease := acquire(t, store, "d")
	conn := connect(t, url)
	settle := func() error { return settleError(store, lease) }
	exec(t, conn, fmt.Sprintf("alter database %s set default_transaction_read_only = on", databaseOf(t, conn)))
	terminate(t, conn)
	wantError(t, eventually(settle), "settle d", "standby or read only", "25006")
	exec(t, conn, "set default_transaction_read_only = off")
	exec(t, conn, fmt.Sprintf("alter database %s reset default_transaction_read_only", databaseOf(t, conn)))
	terminate(t, conn)
	exec(t, conn, "alter table outbox_cursor rename column crash_count to crashes")
	wantError(t, eventually(settle), "not those of this version: run `pillarbox migrate`")
	exec(t, conn, "drop table outbox_cursor cascade")
	err := eventually(settle)
	wantError(t, err, `schema "public" was never migrated: run `+"`pillarbox migrate`")
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) || pgErr.Code != "42P01" {
		t.Errorf("got %v, want the server's own error wrapped", err)
	}
}

// eventually calls f until its connections are new ones, and returns the error of the last call.
func eventually(f func() error) (err error) {
	for range 20 {
		if err = f(); err != nil && !strings.Contains(err.Error(), "57P01") && !strings.Contains(err.Error(), "conn") &&
			!strings.Contains(err.Error(), "EOF") {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
	return err
}

func TestContextEndsACall(t *testing.T) {
	url := database(t)
	store := open(t, postgres.Config{URL: url})
	lease := acquire(t, store, "d")
	conn := connect(t, url)
	exec(t, conn, "begin")
	exec(t, conn, "select from outbox_cursor for update") // an operator's transaction that does not end
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err := store.Settle(ctx, lease, settlement(1))
	if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > 5*time.Second {
		t.Errorf("after %v got %v, want it to end with its context", time.Since(began), err)
	}
	exec(t, conn, "rollback")
	if err := eventually(func() error { return settleError(store, lease) }); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}
