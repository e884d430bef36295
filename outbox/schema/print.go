package schema

import (
	"errors"
	"fmt"
	"strings"
)

// Print returns the complete SQL: one transaction that makes the schema when there is none and applies all migrations.
// Applying it again does no harm. A migration tool that opens a transaction of its own wants it without the first and
// the last statement.
func Print(d Dialect, schemaName string) (string, error) {
	if err := CheckName(d, schemaName); err != nil {
		return "", err
	}
	all, err := Migrations(d)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	if d == Postgres {
		b.WriteString("begin isolation level read committed;\n")
		b.WriteString(postgresLock)
		b.WriteString(createSchema(schemaName))
		fmt.Fprintf(&b, postgresSettings, Quote(schemaName))
	} else {
		b.WriteString("begin immediate;\n")
	}
	for _, m := range all {
		fmt.Fprintf(&b, "\n-- ==== %v ====\n\n%s", m, m.SQL)
		fmt.Fprintf(&b, recordMigration, m.Version)
	}
	b.WriteString("\ncommit;\n")
	return b.String(), nil
}

// createSchema asks first: "create schema if not exists" wants CREATE on the database also when the schema exists.
func createSchema(name string) string {
	body := fmt.Sprintf(`
begin
  if not exists (select from pg_catalog.pg_namespace where nspname = %s) then
    create schema %s;
  end if;
end
`, QuoteLiteral(name), Quote(name))
	tag := "$outbox$"
	for strings.Contains(body, tag) {
		tag = tag[:len(tag)-1] + "_$"
	}
	return "do " + tag + body + tag + ";\n"
}

// The grants. %[1]s is the schema, %[2]s the role. Functions are among them: everybody may call them only until somebody has told
// the database otherwise (alter default privileges).
const (
	// RETURNING and ON CONFLICT read the two columns; asleep says whether a relay wants to be woken. There is none on seq: it
	// comes from its default.
	appGrants = `-- A service that writes events. It cannot read, change or delete those, nor choose a number.
grant usage on schema %[1]s to %[2]s;
grant insert (event_id, topic_name, partition_key, aggregate_type, aggregate_id, aggregate_version, event_type,
  event_version, schema_ref, payload, payload_bytes, headers, dedup_key, available_at, created_at)
  on %[1]s.outbox_event to %[2]s;
grant select (event_id, dedup_key) on %[1]s.outbox_event to %[2]s;
grant usage on sequence %[1]s.outbox_event_seq to %[2]s;
grant select (asleep) on %[1]s.outbox_cursor to %[2]s;
grant select on %[1]s.outbox_migration to %[2]s;
-- The same service as a consumer: the inbox, the version guard, the responses to commands.
grant select, insert, update, delete on %[1]s.outbox_inbox, %[1]s.outbox_inbox_duplicate, %[1]s.outbox_inbox_version,
  %[1]s.outbox_idempotency to %[2]s;
grant execute on function %[1]s.outbox_inbox_first(text, text, integer),
  %[1]s.outbox_inbox_guard(text, text, text, bigint, boolean, integer),
  %[1]s.outbox_idempotency_claim(text, text, text, bigint, integer) to %[2]s;
`
	relayGrants = `-- The relay: reads the log, keeps the cursors and the ledger.
grant usage on schema %[1]s to %[2]s;
grant select on %[1]s.outbox_event, %[1]s.outbox_endpoint, %[1]s.outbox_status, %[1]s.outbox_migration to %[2]s;
grant select on sequence %[1]s.outbox_event_seq to %[2]s;
grant select, insert, update, delete on %[1]s.outbox_cursor, %[1]s.outbox_delivery to %[2]s;
grant select, insert, update on %[1]s.outbox_task to %[2]s;
grant execute on function %[1]s.outbox_shard(text, bigint, integer) to %[2]s;
`
	operatorGrants = `-- An operator: sees everything; retries, discards, repairs, pauses, replays; moves old rows to the archive. What
-- was done is recorded, and the record can only be added to.
grant usage on schema %[1]s to %[2]s;
grant select on %[1]s.outbox_event, %[1]s.outbox_cursor, %[1]s.outbox_delivery, %[1]s.outbox_status, %[1]s.outbox_endpoint,
  %[1]s.outbox_operator_action, %[1]s.outbox_event_archive, %[1]s.outbox_delivery_archive, %[1]s.outbox_migration,
  %[1]s.outbox_inbox, %[1]s.outbox_inbox_duplicate, %[1]s.outbox_inbox_version to %[2]s;
grant select on sequence %[1]s.outbox_event_seq to %[2]s;
grant update (payload, payload_bytes, headers), delete on %[1]s.outbox_event to %[2]s;
grant insert, update, delete on %[1]s.outbox_cursor, %[1]s.outbox_delivery, %[1]s.outbox_endpoint to %[2]s;
grant insert on %[1]s.outbox_operator_action to %[2]s;
grant select, insert, update on %[1]s.outbox_job, %[1]s.outbox_task to %[2]s;
grant insert, delete on %[1]s.outbox_event_archive, %[1]s.outbox_delivery_archive to %[2]s;
grant execute on function %[1]s.outbox_shard(text, bigint, integer) to %[2]s;
`
)

// PrintRoles returns the grants for three PostgreSQL roles that exist: a service that writes or handles events, the relay, and an
// operator. An empty name leaves that part out. A relay that also writes heartbeat events needs the app's grants too, and one
// that keeps retention or serves an operator's actions the operator's.
func PrintRoles(schemaName, app, relay, operator string) (string, error) {
	if err := CheckName(Postgres, schemaName); err != nil {
		return "", err
	}
	if app == "" && relay == "" && operator == "" {
		return "", errors.New("no role is named: name at least one of app, relay and operator")
	}
	var b strings.Builder
	b.WriteString("begin;\n")
	for _, role := range []struct{ what, name, grants string }{
		{"app", app, appGrants}, {"relay", relay, relayGrants}, {"operator", operator, operatorGrants},
	} {
		if role.name == "" {
			continue
		}
		if err := checkIdentifier(role.name); err != nil {
			return "", fmt.Errorf("%s role %q: %w", role.what, role.name, err)
		}
		fmt.Fprintf(&b, "\n"+role.grants, Quote(schemaName), Quote(role.name))
	}
	b.WriteString("\ncommit;\n")
	return b.String(), nil
}

// PrintWakeTrigger returns the SQL that lets inserts with plain SQL wake a sleeping relay; Enqueue does so by itself.
// See outbox_wake in the migrations for what it costs. PostgreSQL only.
func PrintWakeTrigger(schemaName string) (string, error) {
	if err := CheckName(Postgres, schemaName); err != nil {
		return "", err
	}
	name := Quote(schemaName)
	return fmt.Sprintf(`create or replace trigger outbox_event_wake after insert on %s.outbox_event
  for each statement execute function %s.outbox_wake();
`, name, name), nil
}
