package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx

	"github.com/pillarbox-dev/pillarbox/examples/linkostar/platform"
	"github.com/pillarbox-dev/pillarbox/outbox"
	"github.com/pillarbox-dev/pillarbox/outbox/schema"
	"github.com/pillarbox-dev/pillarbox/relay"
	"github.com/pillarbox-dev/pillarbox/store/postgres"
	"github.com/pillarbox-dev/pillarbox/store/sqlite"
)

// database is where the platform's tables and the outbox's are, beside each other.
type database struct {
	*sql.DB
	url     string
	dialect outbox.Dialect
}

// openDatabase opens a database, postgres://… or the path of a SQLite file, and makes what tables it lacks.
func openDatabase(ctx context.Context, url string) (d database, err error) {
	d = database{url: url, dialect: outbox.SQLite}
	if strings.HasPrefix(url, "postgres://") || strings.HasPrefix(url, "postgresql://") {
		d.dialect = outbox.Postgres
		d.DB, err = sql.Open("pgx", url)
	} else {
		d.DB, err = sqlite.OpenDB(ctx, sqlite.Config{Path: url})
	}
	if err != nil {
		return d, fmt.Errorf("open the database: %w", err)
	}
	if _, err = schema.Migrate(ctx, d.DB, d.dialect, d.schemaName()); err == nil {
		err = platform.CreateTables(ctx, d.DB, d.dialect)
	}
	if err != nil {
		return d, errors.Join(err, d.Close())
	}
	return d, nil
}

// schemaName is the PostgreSQL schema of the tables.
func (d database) schemaName() string {
	if d.dialect == outbox.SQLite {
		return ""
	}
	return "public"
}

// openStore opens the relay's side, which calls the hook in the transaction of each settle.
func (d database) openStore(ctx context.Context, hook platform.OnSettle) (relay.Store, func(), error) {
	if d.dialect == outbox.SQLite {
		store, err := sqlite.Open(ctx, sqlite.Config{Path: d.url, OnSettle: sqliteHook(hook)})
		if err != nil {
			return nil, nil, err
		}
		return store, func() { _ = store.Close() }, nil
	}
	store, err := postgres.Open(ctx, postgres.Config{URL: d.url, OnSettle: postgresHook(hook)})
	if err != nil {
		return nil, nil, err
	}
	return store, store.Close, nil
}

func sqliteHook(hook platform.OnSettle) sqlite.OnSettle {
	return func(ctx context.Context, tx *sql.Tx, destination string, s relay.Settlement) error {
		exec := func(ctx context.Context, query string, args ...any) error {
			_, err := tx.ExecContext(ctx, query, args...)
			return err
		}
		return hook(ctx, exec, destination, s)
	}
}

func postgresHook(hook platform.OnSettle) postgres.OnSettle {
	return func(ctx context.Context, tx pgx.Tx, destination string, s relay.Settlement) error {
		exec := func(ctx context.Context, query string, args ...any) error {
			_, err := tx.Exec(ctx, query, args...)
			return err
		}
		return hook(ctx, exec, destination, s)
	}
}
