package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx

	"github.com/pillarbox-dev/pillarbox/examples/approvals/approval"
	"github.com/pillarbox-dev/pillarbox/outbox"
	"github.com/pillarbox-dev/pillarbox/relay"
	"github.com/pillarbox-dev/pillarbox/store/postgres"
	"github.com/pillarbox-dev/pillarbox/store/sqlite"
)

// database is where the approvals and the outbox are, beside each other.
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
	if err := approval.Migrate(ctx, d.DB, d.dialect, d.schemaName()); err != nil {
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

// openStore opens the relay's side. In SQLite it waits for the service's transactions for less than a third of a short lease.
func (d database) openStore(ctx context.Context) (relay.Store, func(), error) {
	if d.dialect == outbox.SQLite {
		store, err := sqlite.Open(ctx, sqlite.Config{Path: d.url, BusyTimeout: 500 * time.Millisecond})
		if err != nil {
			return nil, nil, err
		}
		return store, func() { _ = store.Close() }, nil
	}
	store, err := postgres.Open(ctx, postgres.Config{URL: d.url})
	if err != nil {
		return nil, nil, err
	}
	return store, store.Close, nil
}
