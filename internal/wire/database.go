// Package wire puts the parts together as a configuration says. It is the one place that knows all of them: both stores, every
// destination, the metrics. Nothing is decided here.
//
//	config → store ─┐
//	         destinations → relay → observers (metrics, log)
//	         ops ───┘
package wire

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/pillarbox-dev/pillarbox/internal/config"
	"github.com/pillarbox-dev/pillarbox/ops"
	"github.com/pillarbox-dev/pillarbox/outbox/schema"
	"github.com/pillarbox-dev/pillarbox/relay"
	"github.com/pillarbox-dev/pillarbox/store/postgres"
	"github.com/pillarbox-dev/pillarbox/store/sqlite"
)

// connectTimeout bounds the making of a connection that somebody waits for.
const connectTimeout = 10 * time.Second

// OpenStore opens the relay's store and makes sure that it can work. The error holds all problems.
func OpenStore(ctx context.Context, db config.Database) (relay.Store, func(), error) {
	if db.Dialect() == schema.SQLite {
		s, err := sqlite.Open(ctx, sqlite.Config{Path: db.URL.Reveal()})
		if err != nil {
			return nil, nil, err
		}
		return s, func() { _ = s.Close() }, nil
	}
	address, err := address(db)
	if err != nil {
		return nil, nil, err
	}
	s, err := postgres.Open(ctx, postgres.Config{URL: address, Schema: db.SchemaName(), MaxConns: db.MaxConnections})
	if err != nil {
		return nil, nil, err
	}
	return s, s.Close, nil
}

// OpenDB opens the database for an operator: a few connections whose search_path is the outbox's schema. An SQLite file that is not
// there is made only when create says so.
func OpenDB(ctx context.Context, db config.Database, create bool) (*sql.DB, error) {
	if db.Dialect() == schema.SQLite {
		if !create {
			// The store says what is wrong with a file. It wants the tables as well, which is right: nothing works without.
			_, closeStore, err := OpenStore(ctx, db)
			if err != nil {
				return nil, err
			}
			closeStore()
		}
		return sqlite.OpenDB(ctx, sqlite.Config{Path: db.URL.Reveal()})
	}
	address, err := address(db)
	if err != nil {
		return nil, err
	}
	pool, err := openPostgres(address, db.SchemaName())
	if err != nil {
		return nil, err
	}
	if err := pool.PingContext(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("connect to %v: %w: see that the database runs, and that its address, user and password "+
			"are right", db.URL, err), pool.Close())
	}
	return pool, nil
}

func openPostgres(address, schemaName string) (*sql.DB, error) {
	c, err := pgx.ParseConfig(address)
	if err != nil {
		return nil, fmt.Errorf("database.url is not one of PostgreSQL: %w", err) // pgx hides the password
	}
	if c.ConnectTimeout == 0 {
		c.ConnectTimeout = connectTimeout
	}
	if _, named := c.RuntimeParams["application_name"]; !named {
		c.RuntimeParams["application_name"] = "pillarbox operator"
	}
	// By a statement, and not as a parameter of the start-up message, of which pgbouncer refuses those that it does not know.
	path := schema.Quote(schemaName) + ", pg_temp"
	pool := stdlib.OpenDB(*c, stdlib.OptionAfterConnect(func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, `select set_config('search_path', $1, false)`, path)
		return err
	}))
	pool.SetMaxOpenConns(2)
	return pool, nil
}

// OpenOps opens the database for ops.
func OpenOps(ctx context.Context, db config.Database) (*ops.Ops, func(), error) {
	pool, err := OpenDB(ctx, db, false)
	if err != nil {
		return nil, nil, err
	}
	closePool := func() { _ = pool.Close() }
	if err := schema.Check(ctx, pool, db.Dialect(), db.SchemaName()); err != nil && !errors.Is(err, schema.ErrNewer) {
		closePool()
		return nil, nil, err
	}
	o, err := ops.New(pool, db.Dialect(), db.SchemaName())
	if err != nil {
		closePool()
		return nil, nil, err
	}
	return o, closePool, nil
}

// address returns the URL with the password out of its file.
func address(db config.Database) (string, error) {
	if db.PasswordFile == "" {
		return db.URL.Reveal(), nil
	}
	password, err := os.ReadFile(db.PasswordFile)
	if err != nil {
		return "", fmt.Errorf("database.password_file: %w: mount it and let this user read it", err)
	}
	text := strings.TrimSpace(string(password))
	if text == "" {
		return "", fmt.Errorf("database.password_file %q is empty: write the password into it", db.PasswordFile)
	}
	u, err := url.Parse(db.URL.Reveal())
	if err != nil {
		return "", errors.New("database.url is no valid address") // checked when it was loaded; the error would show the password
	}
	u.User = url.UserPassword(u.User.Username(), text)
	return u.String(), nil
}
