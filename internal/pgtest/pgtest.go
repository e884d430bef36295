// Package pgtest starts real PostgreSQL servers for tests and benchmarks.
//
// A server lives in a temporary folder, listens on a free port of 127.0.0.1, trusts everyone there, and keeps fsync on unless
// told otherwise. It never runs as root: root starts it as the user postgres. It is gone, folder included, when Stop returns
// or when the process that started it ends in any way, also by kill -9: see guard.
//
// A test wants a database of its own in the server that the tests of one binary share:
//
//	url := pgtest.Database(t)
//
// A test that restarts its server, or needs other settings, has its own:
//
//	server := pgtest.New(t, pgtest.Options{Settings: map[string]string{"wal_level": "logical"}})
//	url := server.Database(t)
//	err := server.Restart(pgtest.Immediate)
//
// A program without a testing.TB uses Start and Stop.
//
// The binaries come from $PILLARBOX_PG_BIN or the newest /usr/lib/postgresql/*/bin; fetch.sh installs other versions.
// Where there are none the test fails: it is never skipped.
package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// Options say how a server is made. The zero value is what most tests want.
type Options struct {
	// Bin is the folder that holds initdb and postgres. Default: $PILLARBOX_PG_BIN, else the newest
	// /usr/lib/postgresql/*/bin.
	Bin string
	// Dir is where the temporary folder is made; the user postgres must be able to reach it. Default: os.TempDir().
	Dir string
	// Settings go to postgresql.conf on top of the defaults: max_connections 200, max_prepared_transactions 64.
	Settings map[string]string
}

// Server is a running PostgreSQL. Its methods are not to be called at the same time, besides URL, Database and
// CreateDatabase.
type Server struct {
	bin, dir  string
	port      int
	guard     *guard
	process   *process // nil while the server is down
	databases atomic.Int64
}

// How long a server may take to start (crash recovery included) or to stop.
const (
	startTimeout = 60 * time.Second
	stopTimeout  = 60 * time.Second
)

// Start makes a server and returns when it accepts connections. The caller owes it a Stop.
func Start(opts Options) (*Server, error) {
	bin, err := findBin(opts.Bin)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(opts.Dir, "pgtest")
	if err != nil {
		return nil, fmt.Errorf("make a folder for PostgreSQL: %w", err)
	}
	s := &Server{bin: bin, dir: dir}
	if s.guard, err = startGuard(dir, s.dataDir()); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if err := s.create(opts.Settings); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// create makes the cluster and starts it. Somebody else may take the free port before the server does, so a failed
// first start is tried again on another port.
func (s *Server) create(settings map[string]string) error {
	if err := initCluster(s.bin, s.dir, s.dataDir()); err != nil {
		return err
	}
	var err error
	for range 3 {
		if s.port, err = freePort(); err != nil {
			return err
		}
		if err = s.writeSettings(settings); err != nil {
			return err
		}
		if err = s.Up(); err == nil {
			return nil
		}
	}
	return err
}

// URL returns the connection string of a database, as the superuser.
func (s *Server) URL(database string) string {
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/%s?sslmode=disable", s.port, database)
}

// Port returns the TCP port on 127.0.0.1. It stays the same over restarts.
func (s *Server) Port() int { return s.port }

// LogFile returns the path of the server's log.
func (s *Server) LogFile() string { return filepath.Join(s.dir, "log") }

// PID returns the process id of the postmaster; 0 while the server is down.
func (s *Server) PID() int {
	if s.process == nil {
		return 0
	}
	return s.process.cmd.Process.Pid
}

// CreateDatabase makes an empty database and returns its URL.
func (s *Server) CreateDatabase(ctx context.Context, name string) (string, error) {
	if err := s.exec(ctx, "create database "+pgx.Identifier{name}.Sanitize()); err != nil {
		return "", fmt.Errorf("create database %s: %w", name, err)
	}
	return s.URL(name), nil
}

// DropDatabase ends the connections to a database and removes it.
func (s *Server) DropDatabase(ctx context.Context, name string) error {
	if err := s.exec(ctx, "drop database if exists "+pgx.Identifier{name}.Sanitize()+" with (force)"); err != nil {
		return fmt.Errorf("drop database %s: %w", name, err)
	}
	return nil
}

func (s *Server) exec(ctx context.Context, sql string) error {
	conn, err := pgx.Connect(ctx, s.URL("postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, sql)
	return err
}

// Restart takes the server down and up again, on the same port with the same data.
func (s *Server) Restart(mode Mode) error {
	if err := s.Down(mode); err != nil {
		return err
	}
	return s.Up()
}

// Stop takes the server down and removes its folder. A second Stop does nothing.
func (s *Server) Stop() error {
	return errors.Join(s.Down(Fast), s.guard.finish())
}

func (s *Server) dataDir() string { return filepath.Join(s.dir, "data") }

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port on 127.0.0.1: %w", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
