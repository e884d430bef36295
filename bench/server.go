package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pillarbox-dev/pillarbox/internal/pgtest"
)

// settings are what the benchmark's own server has beyond the defaults; both sides of every ratio run on it. fsync,
// synchronous_commit, full_page_writes and autovacuum stay on. The rest keeps checkpoints from falling into some of the
// rounds and not into others.
func settings(further map[string]string) map[string]string {
	all := map[string]string{
		"shared_buffers":     "1GB",
		"max_wal_size":       "16GB",
		"checkpoint_timeout": "30min",
	}
	maps.Copy(all, further)
	return all
}

// sessionOptions are the flags that every command has.
type sessionOptions struct {
	database               string
	rounds                 int
	cpuProfile, memProfile string
}

func (o *sessionOptions) register(flags *flag.FlagSet) {
	flags.StringVar(&o.database, "database", "", "`URL` of a PostgreSQL to use, whose user may create databases; default: one is started")
	flags.IntVar(&o.rounds, "rounds", 3, "how often everything is measured, in turns; the figures are medians")
	flags.StringVar(&o.cpuProfile, "cpuprofile", "", "write a CPU profile of the relay's first run to this `file`")
	flags.StringVar(&o.memProfile, "memprofile", "", "write a heap profile of the relay's first run to this `file`")
}

// session is one run of the program: a server, and databases that are made for the occasion.
type session struct {
	sessionOptions
	settings  map[string]string
	url       string
	stop      func() error // nil: the server is somebody else's
	serverPID int          // 0: likewise
	made      []string     // databases to drop
	version   string
	stderr    io.Writer
	started   time.Time
}

func openSession(ctx context.Context, opts sessionOptions, further map[string]string, stderr io.Writer) (*session, error) {
	if opts.rounds < 1 {
		return nil, fmt.Errorf("--rounds %d: at least one is needed", opts.rounds)
	}
	s := &session{sessionOptions: opts, settings: settings(further), url: opts.database, stderr: stderr, started: time.Now()}
	if s.url == "" {
		server, err := pgtest.Start(pgtest.Options{Settings: s.settings})
		if err != nil {
			return nil, err
		}
		s.url, s.stop, s.serverPID = server.URL("postgres"), server.Stop, server.PID()
	}
	if err := s.admin(ctx, "show server_version", &s.version); err != nil {
		return nil, errors.Join(fmt.Errorf("connect to PostgreSQL: %w (see --database)", err), s.close())
	}
	return s, nil
}

// close drops what was made and stops a server that was started. It works after a Ctrl-C too.
func (s *session) close() error {
	if s.stop != nil {
		return s.stop()
	}
	var errs []error
	for _, name := range s.made {
		errs = append(errs, s.admin(context.Background(), "drop database if exists "+name+" with (force)"))
	}
	return errors.Join(errs...)
}

// admin runs one statement in the database of the URL and scans its row, if it is to have one.
func (s *session) admin(ctx context.Context, sql string, into ...any) error {
	conn, err := pgx.Connect(ctx, s.url)
	if err != nil {
		return err
	}
	defer conn.Close(context.Background())
	if len(into) == 0 {
		_, err = conn.Exec(ctx, sql)
		return err
	}
	return conn.QueryRow(ctx, sql).Scan(into...)
}

// readyWAL lets a server that was started have so many bytes of WAL files that it need not make, only use again, as long as its
// min_wal_size keeps them. A file is made by whoever commits when there is none, and all the others wait for some 50 ms until its
// 16 MB are on the disk: an old server hardly ever does that, a new one all the time, and most of all who writes much.
func (s *session) readyWAL(ctx context.Context, bytes int) error {
	if s.stop == nil {
		return nil
	}
	s.say("make %s MB of WAL files", formatNumber(float64(bytes/1_000_000)))
	const file = 16 << 20
	fill := fmt.Sprintf("select pg_logical_emit_message(false, 'bench', 'the file is in use'), pg_switch_wal() from generate_series(1, %d)",
		bytes/file)
	for _, sql := range []string{fill, "checkpoint"} {
		if err := s.admin(ctx, sql); err != nil {
			return fmt.Errorf("make WAL files: %w", err)
		}
	}
	return nil
}

// createDatabase makes an empty database and returns its URL.
func (s *session) createDatabase(ctx context.Context, purpose string) (string, error) {
	u, err := url.Parse(s.url)
	if err != nil || u.Host == "" {
		return "", errors.New("--database must be a URL, like postgres://user@127.0.0.1:5432/postgres")
	}
	name := fmt.Sprintf("pillarbox_bench_%s_%d", purpose, os.Getpid())
	if err := s.admin(ctx, "create database "+name); err != nil {
		return "", fmt.Errorf("create database %s: %w (the user of --database needs the right to)", name, err)
	}
	s.made = append(s.made, name)
	u.Path = "/" + name
	return u.String(), nil
}

// say tells what is under way.
func (s *session) say(format string, args ...any) {
	fmt.Fprintf(s.stderr, "%6.1fs  %s\n", time.Since(s.started).Seconds(), fmt.Sprintf(format, args...))
}

// settingsText is for the report: how the server differs from its defaults.
func (s *session) settingsText() string {
	if s.stop == nil {
		return "as found at --database"
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(s.settings)) {
		parts = append(parts, name+"="+s.settings[name])
	}
	return strings.Join(parts, " ")
}
