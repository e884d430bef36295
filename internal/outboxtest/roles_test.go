package outboxtest

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pillarbox-dev/pillarbox/internal/pgtest"
	"github.com/pillarbox-dev/pillarbox/outbox"
	"github.com/pillarbox-dev/pillarbox/outbox/schema"
)

// TestRoles applies what PrintRoles prints and lets each role do all that it must, and try what it must not, in a database where
// nobody may call a function that was not granted.
func TestRoles(t *testing.T) {
	url := pgtest.Database(t)
	run(t, openPostgres(t, url), "alter default privileges revoke execute on functions from public")
	b := onPostgres(t, url)
	app, relay, operator := newRole(t, b.db, "app"), newRole(t, b.db, "relay"), newRole(t, b.db, "operator")
	text, err := schema.PrintRoles(oddSchema, app, relay, operator)
	must(t, err)
	for range 2 {
		psql(t, url, text)
	}
	run(t, b.db, "create table public.business (secret text); insert into business values ('x')")
	run(t, b.db, "insert into "+qualified(outbox.Postgres, oddSchema,
		"outbox_endpoint")+" (destination, endpoint, url) values ('d', 'e', 'http://x')")
	t.Run("app", func(t *testing.T) {
		db := openPostgres(t, as(url, app))
		for _, asleep := range []string{"false", "true"} {
			run(t, b.db, "insert into "+qualified(outbox.Postgres, oddSchema,
				"outbox_cursor")+" (destination, asleep) values ('"+asleep+"', "+asleep+")")
			tx := beginSQL(t, db)
			e := event("by-app")
			e.DedupKey = "key"
			results := enqueue(t, b, tx, e, event(""))
			if results[0].Duplicate != (asleep == "true") {
				t.Errorf("got %v", results)
			}
			must(t, tx.Commit())
		}
		must(t, schema.Check(t.Context(), db, schema.Postgres, oddSchema))
	})
	may := map[string][]string{
		app: {
			"insert into outbox_event (topic_name, event_type) values ('t', 'T')",
			"insert into outbox_event (topic_name, event_type, payload) values ('t', 'T', '{}') on conflict do nothing returning event_id",
			"select * from outbox_inbox_first('c', '[[\"e\",\"00\"]]', 1000)",
			"select * from outbox_inbox_first('c', '[[\"e\",\"00\"]]', 1000)",
			"delete from outbox_inbox", "delete from outbox_inbox_duplicate",
			"select outbox_inbox_guard('c', 'a', '1', 1, false, 1000)", "delete from outbox_inbox_version",
			"select * from outbox_idempotency_claim('o', 'k', '00', 1000, 1000)", "update outbox_idempotency set status = 200",
			"delete from outbox_idempotency",
		},
		relay: {
			"select * from outbox_event", "select * from outbox_endpoint", "select * from outbox_status",
			"select last_value from outbox_event_seq",
			"insert into outbox_cursor (destination) values ('r') on conflict (destination, shard) do update set position = 1",
			"update outbox_cursor set lease_epoch = lease_epoch + 1", "select * from outbox_cursor for update skip locked",
			"insert into outbox_delivery (destination, seq, status) values ('r', 1, 'FAILED')",
			"update outbox_delivery set status = 'PUBLISHED'", "select * from outbox_delivery for update", "delete from outbox_delivery",
		},
		operator: {
			"select * from outbox_status", "select * from outbox_event", "select * from outbox_cursor",
			"select last_value from outbox_event_seq", "select * from outbox_inbox", "select * from outbox_inbox_duplicate",
			"select * from outbox_inbox_version",
			"update outbox_event set payload = '{}', payload_bytes = null, headers = '{}' where seq = 1",
			"insert into outbox_operator_action (operator, action) values ('me', 'repair')", "select * from outbox_operator_action",
			"insert into outbox_delivery (destination, seq, status) values ('o', 1, 'PENDING')",
			"update outbox_delivery set status = 'DISCARDED'",
			"update outbox_cursor set paused_reason = 'x'",
			"insert into outbox_endpoint (destination, endpoint, url) values ('d', 'f', 'http://x')",
			"insert into outbox_event_archive select * from outbox_event",
			"insert into outbox_delivery_archive select * from outbox_delivery",
			"delete from outbox_delivery", "delete from outbox_event", "select * from outbox_event_archive",
			"select * from outbox_delivery_archive",
		},
	}
	mayNot := map[string][]string{
		app: {
			"insert into outbox_event (seq, topic_name, event_type) values (99, 't', 'T')", "update outbox_event set topic_name = 't'",
			"delete from outbox_event", "select payload from outbox_event", "select * from outbox_event", "truncate outbox_event",
			"select setval('outbox_event_seq', 1)", "select * from outbox_cursor", "update outbox_cursor set asleep = false",
			"select * from outbox_delivery", "select * from outbox_status", "select * from outbox_endpoint", "drop table outbox_event",
			"create table mine (x int)", "alter table outbox_event disable trigger all", "select * from outbox_operator_action",
			"insert into outbox_migration (version) values (99)",
		},
		relay: {
			"insert into outbox_event (topic_name, event_type) values ('t', 'T')", "update outbox_event set topic_name = 't'",
			"delete from outbox_event",
			"update outbox_endpoint set url = 'http://evil'", "insert into outbox_operator_action (operator, action) values ('me', 'x')",
			"select setval('outbox_event_seq', 1)", "select nextval('outbox_event_seq')", "create table mine (x int)",
			"select * from public.business", "select * from outbox_inbox_first('c', '[[\"e\",\"00\"]]', 1000)",
			"select * from outbox_idempotency",
		},
		operator: {
			"insert into outbox_event (topic_name, event_type) values ('t', 'T')", "update outbox_event set event_id = 'x'",
			"update outbox_event set seq = 1",
			"update outbox_operator_action set operator = 'you'", "delete from outbox_operator_action", "truncate outbox_operator_action",
			"update outbox_event_archive set payload = null", "select setval('outbox_event_seq', 1)", "create table mine (x int)",
			"select * from public.business", "insert into outbox_migration (version) values (99)",
			"select * from outbox_inbox_first('c', '[[\"e\",\"00\"]]', 1000)", "select * from outbox_idempotency",
		},
	}
	for _, role := range []string{app, relay, operator} {
		t.Run(role, func(t *testing.T) {
			db := openPostgres(t, as(url, role))
			db.SetMaxOpenConns(1)
			run(t, db, "set search_path to "+schema.Quote(oddSchema))
			for _, statement := range may[role] {
				if _, err := db.ExecContext(t.Context(), statement); err != nil {
					t.Errorf("%s: %v", statement, err)
				}
			}
			for _, statement := range mayNot[role] {
				_, err := db.ExecContext(t.Context(), statement)
				if refused := (*pgconn.PgError)(nil); !errors.As(err, &refused) || refused.Code != "42501" {
					t.Errorf("%s: got %v, want insufficient_privilege", statement, err)
				}
			}
		})
	}
}

// TestRolesCountAfterMigration: a service that runs while its database is migrated has the rights that it was given before there
// was a table for the duplicates, and goes on.
func TestRolesCountAfterMigration(t *testing.T) {
	url := pgtest.Database(t)
	b := onPostgres(t, url)
	table, app, reader := b.table("outbox_inbox_duplicate"), newRole(t, b.db, "app"), newRole(t, b.db, "reader")
	for _, statement := range []string{
		"drop table " + table, "delete from " + b.table("outbox_migration") + " where version = 6",
		"grant usage on schema " + schema.Quote(oddSchema) + " to public", "grant select on " + b.table("outbox_inbox") + " to public",
		"grant select, insert, update, delete on " + b.table("outbox_inbox") + " to " + schema.Quote(app),
	} {
		run(t, b.db, statement)
	}
	migrate(t, b.db, schema.Postgres, oddSchema)
	in, db := newInbox(t, b, 0), openPostgres(t, as(url, app))
	for _, first := range []bool{true, false} {
		tx := beginSQL(t, db)
		wantFirst(t, in, tx, "c", "e", "{}", first)
		must(t, tx.Commit())
	}
	wantCounts(t, b, "c e 1")
	db = openPostgres(t, as(url, reader))
	run(t, db, "select * from "+table)
	if _, err := db.ExecContext(t.Context(), "delete from "+table); err == nil {
		t.Error("who may only read the inbox has deleted counts")
	}
}

func TestPrintRolesRefuses(t *testing.T) {
	for _, c := range []struct{ schema, app, relay, operator, want string }{
		{"public", "", "", "", "at least one"},
		{"", "a", "", "", "empty"},
		{"public", "a\x00", "", "", "app role"},
		{"public", "", strings.Repeat("x", 64), "", "relay role"},
		{"public", "", "", "\xff", "operator role"},
	} {
		if text, err := schema.PrintRoles(c.schema, c.app, c.relay, c.operator); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: got %q, %v; want an error with %q", c, text, err, c.want)
		}
	}
	text, err := schema.PrintRoles("public", "", "only-relay", "")
	if err != nil || strings.Count(text, "usage on schema") != 1 || !strings.Contains(text, `to "only-relay"`) {
		t.Errorf("one role alone: got %q, %v", text, err)
	}
}
