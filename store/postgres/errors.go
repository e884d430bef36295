package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
)

// failed says what was being done, and to an operator what to do.
func (s *Store) failed(doing string, err error) error {
	if hint := s.hint(err); hint != "" {
		return fmt.Errorf("postgres: %s: %w: %s", doing, err, hint)
	}
	return fmt.Errorf("postgres: %s: %w", doing, err)
}

// hint is what to do about an error; "" when trying again is all.
func (s *Store) hint(err error) string {
	if errors.As(err, new(*hookError)) {
		return hintHook
	}
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		return s.hintFor(pgErr.Code)
	}
	var connectErr *pgconn.ConnectError
	if errors.As(err, &connectErr) && !errors.Is(err, context.Canceled) {
		return "the database cannot be reached: see that it runs, and that host, port and firewall are right"
	}
	return ""
}

const hintHook = "nothing was written and it is tried again, but the destination stands still meanwhile: mend what OnSettle does"

// hintFor knows the SQLSTATEs of https://www.postgresql.org/docs/current/errcodes-appendix.html that an operator can mend.
func (s *Store) hintFor(sqlstate string) string {
	switch sqlstate {
	case "42P01", "3F000": // undefined_table, invalid_schema_name
		return fmt.Sprintf("schema %q was never migrated: run `pillarbox migrate`, or name the schema that was", s.schema)
	case "42703", "42883": // undefined_column, undefined_function
		return fmt.Sprintf("the tables of schema %q are not those of this version: run `pillarbox migrate`", s.schema)
	case "42501": // insufficient_privilege
		return "the user lacks a right: grant what `pillarbox migrate --print-roles` prints for the relay"
	case "25006": // read_only_sql_transaction
		return "the database is a standby or read only: connect to the primary (target_session_attrs=read-write)"
	case "28000", "28P01": // invalid_authorization_specification, invalid_password
		return "the server refuses the user: see to the user name, the password and pg_hba.conf"
	case "3D000": // invalid_catalog_name
		return "create the database, or correct its name in the URL"
	case "53300": // too_many_connections
		return "the server has no connection left: raise its max_connections, or lower max_conns of those who use it"
	case "53100", "53200": // disk_full, out_of_memory
		return "give the server more room"
	case "57P03": // cannot_connect_now
		return "the server starts up or shuts down: wait for it"
	case "26000", "42P05": // invalid_sql_statement_name, duplicate_prepared_statement
		return "a pooler changes connections between statements: set pgbouncer to pool_mode=session, or connect directly"
	}
	return ""
}
