package schema

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"
)

var (
	// ErrPending says that the database lacks migrations.
	ErrPending = errors.New("the outbox tables are not up to date")
	// ErrNewer says that a newer version of the library has migrated the database.
	ErrNewer = errors.New("the outbox tables are newer than this program")
)

const (
	postgresHasMigrations = `select exists (select from pg_catalog.pg_class c
  join pg_catalog.pg_namespace n on n.oid = c.relnamespace
 where n.nspname = %s and c.relname = 'outbox_migration')`
	postgresHasSchema = `select exists (select from pg_catalog.pg_namespace where nspname = %s)`

	// Only the schema itself is looked in, so that neither a temporary table nor another schema's is taken for ours; notices
	// of what exists already are of no use to anybody. While a migration waits for a table that a transaction holds, whoever
	// wants the table after it waits as well, producers too: it gives up soon.
	postgresSettings = `set local search_path to %s, pg_temp;
set local client_min_messages to warning;
set local lock_timeout to '2s';
`
	// One migration at a time in one database, whatever the schema.
	postgresLock = `select pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended('pillarbox migrate', 0));
`
	sqliteHasMigrations = `select exists (select 1 from main.sqlite_master where type = 'table' and name = 'outbox_migration')`

	recordMigration = `insert into outbox_migration (version) values (%d) on conflict do nothing;
`
)

// Migrate applies what is missing, in one transaction, and returns what that was. The schema is made when it does not
// exist. Any number of processes may migrate at the same time: one works, the others wait for it and find nothing to do.
//
// In PostgreSQL the user needs CREATE on the schema, or on the database when there is no schema yet. In SQLite a database
// that is busy is waited for, until the context ends or 30 seconds have passed; schemaName is "" there. In PostgreSQL a table that
// is in use is waited for no longer than 2 seconds, because producers wait behind the migration: run it again after the error.
//
// It returns ErrNewer when the database knows migrations that this library does not.
func Migrate[DB *sql.DB | *sql.Conn](ctx context.Context, db DB, d Dialect, schemaName string) ([]Migration, error) {
	if err := CheckName(d, schemaName); err != nil {
		return nil, err
	}
	conn, release, err := connection(ctx, db)
	if err != nil {
		return nil, fmt.Errorf("migrate the outbox: connect: %w", err)
	}
	defer release()
	migrate := migratePostgres
	if d == SQLite {
		migrate = migrateSQLite
	}
	applied, err := migrate(ctx, conn, schemaName)
	if err != nil {
		return nil, fmt.Errorf("migrate the outbox: %w", err)
	}
	return applied, nil
}

// Pending returns the migrations that the database lacks; none: it is up to date. It changes nothing.
// It returns ErrNewer when the database knows migrations that this library does not.
func Pending[DB *sql.DB | *sql.Conn](ctx context.Context, db DB, d Dialect, schemaName string) ([]Migration, error) {
	if err := CheckName(d, schemaName); err != nil {
		return nil, err
	}
	conn, release, err := connection(ctx, db)
	if err != nil {
		return nil, fmt.Errorf("look for the outbox tables: connect: %w", err)
	}
	defer release()
	missing, err := pending(ctx, conn, d, schemaName)
	if err != nil {
		return nil, fmt.Errorf("look for the outbox tables: %w", err)
	}
	return missing, nil
}

// Check returns nil when the database is up to date, and otherwise ErrPending or ErrNewer with a hint what to do.
func Check[DB *sql.DB | *sql.Conn](ctx context.Context, db DB, d Dialect, schemaName string) error {
	missing, err := Pending(ctx, db, d, schemaName)
	if err != nil || len(missing) == 0 {
		return err
	}
	where := "the database"
	if d == Postgres {
		where = fmt.Sprintf("schema %q", schemaName)
	}
	names := make([]string, len(missing))
	for i, m := range missing {
		names[i] = m.String()
	}
	return fmt.Errorf("%w: %s lacks %s: run `pillarbox migrate`, or apply what `pillarbox migrate --print` prints",
		ErrPending, where, strings.Join(names, ", "))
}

// connection returns one connection, because a migration is more than one call, and what gives it back.
func connection[DB *sql.DB | *sql.Conn](ctx context.Context, db DB) (*sql.Conn, func(), error) {
	switch db := any(db).(type) {
	case *sql.Conn:
		return db, func() {}, nil
	case *sql.DB:
		conn, err := db.Conn(ctx)
		if err != nil {
			return nil, nil, err
		}
		return conn, func() { conn.Close() }, nil
	}
	panic("unreachable: the constraint has these two types")
}

// querier is a connection or a transaction.
type querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// pending compares what is known with what outbox_migration holds.
func pending(ctx context.Context, q querier, d Dialect, schemaName string) ([]Migration, error) {
	known, err := Migrations(d)
	if err != nil {
		return nil, err
	}
	exists, table := sqliteHasMigrations, "main.outbox_migration"
	if d == Postgres {
		exists = fmt.Sprintf(postgresHasMigrations, QuoteLiteral(schemaName))
		table = Quote(schemaName) + ".outbox_migration"
	}
	var found bool
	if err := q.QueryRowContext(ctx, exists).Scan(&found); err != nil {
		return nil, err
	}
	if !found {
		return known, nil
	}
	applied, err := versions(ctx, q, table)
	if err != nil {
		return nil, err
	}
	var missing []Migration
	for _, m := range known {
		if !applied[m.Version] {
			missing = append(missing, m)
		}
		delete(applied, m.Version)
	}
	for version := range applied {
		return nil, fmt.Errorf("%w: it was migrated to version %d and this program knows %d: run a newer version of it",
			ErrNewer, version, len(known))
	}
	return missing, nil
}

func versions(ctx context.Context, q querier, table string) (map[int]bool, error) {
	rows, err := q.QueryContext(ctx, "select version from "+table)
	if err != nil {
		return nil, fmt.Errorf("read %s (the user needs SELECT on it): %w", table, err)
	}
	defer rows.Close()
	all := map[int]bool{}
	for rows.Next() {
		var version int
		if err := rows.Scan(&version); err != nil {
			return nil, err
		}
		all[version] = true
	}
	return all, rows.Err()
}

// apply runs what is missing inside the caller's transaction.
func apply(ctx context.Context, q querier, missing []Migration) error {
	for _, m := range missing {
		if _, err := q.ExecContext(ctx, m.SQL); err != nil {
			return fmt.Errorf("apply %v: %w", m, err)
		}
		if _, err := q.ExecContext(ctx, fmt.Sprintf(recordMigration, m.Version)); err != nil {
			return fmt.Errorf("record %v: %w", m, err)
		}
	}
	return nil
}

// migratePostgres asks for READ COMMITTED whatever the default is: each statement after the lock must see what
// the process that held it before has committed.
func migratePostgres(ctx context.Context, conn *sql.Conn, schemaName string) ([]Migration, error) {
	tx, err := conn.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return nil, err
	}
	defer tx.Rollback() // after a commit it does nothing
	if _, err := tx.ExecContext(ctx, postgresLock); err != nil {
		return nil, fmt.Errorf("wait for another migration: %w", err)
	}
	missing, err := pending(ctx, tx, Postgres, schemaName)
	if err != nil || len(missing) == 0 {
		return nil, err
	}
	var exists bool
	if err := tx.QueryRowContext(ctx, fmt.Sprintf(postgresHasSchema, QuoteLiteral(schemaName))).Scan(&exists); err != nil {
		return nil, err
	}
	if !exists { // asked first: "create schema if not exists" wants CREATE on the database also when it exists
		if _, err := tx.ExecContext(ctx, "create schema if not exists "+Quote(schemaName)); err != nil {
			return nil, fmt.Errorf("create schema %q (the user needs CREATE on the database, or an owner creates it first): %w",
				schemaName, err)
		}
	}
	if _, err := tx.ExecContext(ctx, fmt.Sprintf(postgresSettings, Quote(schemaName))); err != nil {
		return nil, err
	}
	if err := apply(ctx, tx, missing); err != nil {
		var state interface{ SQLState() string }
		if errors.As(err, &state) && state.SQLState() == "55P03" { // lock_not_available
			return nil, fmt.Errorf("in schema %q: another transaction holds a table, and producers would have to wait for it as well: "+
				"nothing was changed; run it again when that transaction has ended (see pg_stat_activity): %w", schemaName, err)
		}
		return nil, fmt.Errorf("in schema %q (the user needs CREATE on it): %w", schemaName, err)
	}
	return missing, tx.Commit()
}

// How long a busy SQLite database is waited for, and how long between two tries.
const (
	sqliteBusyTimeout = 30 * time.Second
	sqliteBusyPause   = 20 * time.Millisecond
)

// migrateSQLite writes BEGIN IMMEDIATE itself: database/sql has no word for it, and a transaction that begins as a reader
// cannot always become a writer.
func migrateSQLite(ctx context.Context, conn *sql.Conn, _ string) (applied []Migration, err error) {
	if err := patiently(ctx, conn, "begin immediate"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_, rollbackErr := conn.ExecContext(context.WithoutCancel(ctx), "rollback")
			err = errors.Join(err, rollbackErr)
		}
	}()
	missing, err := pending(ctx, conn, SQLite, "")
	if err != nil {
		return nil, err
	}
	if err := apply(ctx, conn, missing); err != nil {
		return nil, err
	}
	return missing, patiently(ctx, conn, "commit") // it waits for readers
}

// patiently runs a statement again for as long as the database is busy, which leaves everything as it was before.
func patiently(ctx context.Context, conn *sql.Conn, statement string) error {
	deadline := time.Now().Add(sqliteBusyTimeout)
	for {
		_, err := conn.ExecContext(ctx, statement)
		if err == nil || !isBusy(err) {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the database has been busy for %v: find the process that holds it and try again: %w",
				sqliteBusyTimeout, err)
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(sqliteBusyPause):
		}
	}
}

// isBusy knows SQLite's own words for SQLITE_BUSY; drivers pass them on.
func isBusy(err error) bool {
	return strings.Contains(err.Error(), "database is locked") || strings.Contains(err.Error(), "SQLITE_BUSY")
}
