package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"golang.org/x/sync/errgroup"

	"github.com/pillarbox-dev/pillarbox/contract"
	"github.com/pillarbox-dev/pillarbox/outbox"
	"github.com/pillarbox-dev/pillarbox/outbox/schema"
	"github.com/pillarbox-dev/pillarbox/relay"
)

// service is the process of the case platform: the API, and the relay unless that runs beside it.
type service struct {
	settings
	listen string
	beside bool // the relay runs elsewhere: pillarbox run
	log    *slog.Logger

	// A test pulls the plug here, and the demo lets transactions fail.
	beforeCommit func() error
	around       func(http.Handler) http.Handler
	withRelay    func(*relay.Config)
}

// servesMessage is logged when the service takes requests.
const servesMessage = "the case platform serves"

func newService(s settings, log *slog.Logger) *service {
	return &service{
		settings: s, log: log,
		beforeCommit: func() error { return nil },
		around:       func(h http.Handler) http.Handler { return h },
		withRelay:    func(*relay.Config) {},
	}
}

// run serves until the context ends. It makes the tables that are missing.
func (s *service) run(ctx context.Context) error {
	pool, err := openPool(ctx, s.database)
	if err != nil {
		return fmt.Errorf("open the service's database: %w", err)
	}
	defer pool.Close()
	if err := makeTables(ctx, pool, outboxSchema, caseTables); err != nil {
		return err
	}
	contracts, err := loadContracts()
	if err != nil {
		return err
	}
	box, err := outbox.New(outbox.Postgres, outbox.Options{Schema: outboxSchema})
	if err != nil {
		return err
	}
	// Checked here, a breach of contract is an error of the code that makes the event, and the change is not made.
	api, err := (&cases{pool: pool, box: contract.Checking(box, contracts), beforeCommit: s.beforeCommit, log: s.log}).handler()
	if err != nil {
		return err
	}
	if s.beside {
		return s.serve(ctx, s.around(api))
	}
	c, done, err := openRelay(ctx, s.settings, contracts, s.log)
	if err != nil {
		return err
	}
	defer done()
	s.withRelay(&c)
	carrier, err := relay.New(c)
	if err != nil {
		return err
	}
	db := stdlib.OpenDBFromPool(pool)
	defer db.Close()
	board, guarded, err := newBoard(db, c, carrier, contracts)
	if err != nil {
		return err
	}
	pages := http.NewServeMux()
	pages.Handle("/cases", api)
	pages.Handle("/cases/", api)
	pages.Handle("/", guarded)
	return s.serve(ctx, s.around(pages), carrier.Run, func(ctx context.Context) error { board.Run(ctx); return nil })
}

// serve serves until the context ends, and lets others work beside. When one of them fails all are stopped.
func (s *service) serve(ctx context.Context, pages http.Handler, others ...func(context.Context) error) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", s.listen)
	if err != nil {
		return fmt.Errorf("listen on %s: %w: choose another address with --listen", s.listen, err)
	}
	server := &http.Server{
		Handler: pages, ReadHeaderTimeout: 5 * time.Second, ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelWarn),
	}
	working, ctx := errgroup.WithContext(ctx)
	for _, work := range others {
		working.Go(func() error { return work(ctx) })
	}
	working.Go(func() error {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	s.log.Info(servesMessage, "address", listener.Addr().String(), "relay_inside", !s.beside)
	<-ctx.Done()
	patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	err = server.Shutdown(patience)
	if errors.Is(err, context.DeadlineExceeded) {
		err = server.Close() // a connection that has asked for nothing yet counts as busy for so long
	}
	return errors.Join(err, working.Wait())
}

func openPool(ctx context.Context, url string) (*pgxpool.Pool, error) {
	c, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	c.MaxConns = 12
	pool, err := pgxpool.NewWithConfig(ctx, c)
	if err != nil {
		return nil, err
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, fmt.Errorf("%w: see that the database runs, and that DATABASE_URL is right", err)
	}
	return pool, nil
}

// makeTables makes Pillarbox's tables in a schema, and those of the SQL.
func makeTables(ctx context.Context, pool *pgxpool.Pool, schemaName, sql string) error {
	db := stdlib.OpenDBFromPool(pool)
	defer db.Close()
	if _, err := schema.Migrate(ctx, db, schema.Postgres, schemaName); err != nil {
		return err
	}
	if _, err := pool.Exec(ctx, sql); err != nil {
		return fmt.Errorf("make the tables: %w", err)
	}
	return nil
}
