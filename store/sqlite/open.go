package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	driver "modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/pillarbox-dev/pillarbox/outbox/schema"
	"github.com/pillarbox-dev/pillarbox/relay"
)

// Config says which file is opened, and how. The zero value of a field means its default.
type Config struct {
	// Path is the database file: a path, or a URL such as sqlite:///var/lib/shop.db or sqlite:data/shop.db (relative to the
	// working directory at the time of the call). Required. In a URL, %20 and the like are decoded.
	Path string
	// BusyTimeout is how long a transaction waits for another process's write lock. Default 5 s, at most 1 min. It should be
	// less than a third of the relay's lease.
	BusyTimeout time.Duration
	// Synchronous says when a commit is on the disk. Default Full. See Durability in the package documentation.
	Synchronous Synchronous
	// Readers is how many reads of a Store run at once. Default 4, at most 100.
	Readers int
	// MaxWAL is the size in bytes above which a Store cuts the WAL. Default 64 MiB, at least 1 MiB.
	MaxWAL int64
	// Now is the clock of a Store. Default time.Now.
	Now func() time.Time
	// OnSettle of a Store, unless nil, is called in the transaction of each settle that writes deliveries, after the cursor moved
	// and the rows were written: what it writes through tx commits with them, or not at all. See OnSettle.
	OnSettle OnSettle
}

// Synchronous says when a commit is on the disk.
type Synchronous string

const (
	// Full: when it returns.
	Full Synchronous = "full"
	// Normal: some time later; a power failure may undo the last transactions.
	Normal Synchronous = "normal"
)

// setDefaults fills in the defaults.
func (c *Config) setDefaults() {
	if c.BusyTimeout == 0 {
		c.BusyTimeout = 5 * time.Second
	}
	if c.Synchronous == "" {
		c.Synchronous = Full
	}
	if c.Readers == 0 {
		c.Readers = 4
	}
	if c.MaxWAL == 0 {
		c.MaxWAL = 64 << 20
	}
	if c.Now == nil {
		c.Now = time.Now
	}
}

// validate fills in the defaults and returns the file's path, or all problems at once.
func (c *Config) validate() (path string, err error) {
	c.setDefaults()
	var problems []error
	bad := func(format string, args ...any) { problems = append(problems, fmt.Errorf("sqlite: "+format, args...)) }
	path, err = filePath(c.Path)
	if err != nil {
		bad("%w", err)
	}
	if c.BusyTimeout < time.Millisecond || c.BusyTimeout > time.Minute {
		bad("busy timeout %v is outside 1ms to 1m0s", c.BusyTimeout)
	}
	if c.Synchronous != Full && c.Synchronous != Normal {
		bad("synchronous %q is neither %q nor %q", c.Synchronous, Full, Normal)
	}
	if c.Readers < 1 || c.Readers > 100 {
		bad("readers %d is outside 1 to 100", c.Readers)
	}
	if c.MaxWAL < 1<<20 {
		bad("max WAL of %d bytes is less than 1 MiB", c.MaxWAL)
	}
	return path, errors.Join(problems...)
}

// Store is a relay.Store over a SQLite file. It is safe for concurrent use.
type Store struct {
	path   string
	file   fs.FileInfo // what the path named when it was opened
	now    func() time.Time
	writer *sql.DB // one connection
	reader *sql.DB // a few, which cannot write
	wal    wal
	wake   wake

	onSettle OnSettle
}

var (
	_ relay.Store = (*Store)(nil)
	_ relay.Waker = (*Store)(nil)
)

// Open opens the store for a relay. The file must exist and have the tables of outbox/schema. Errors say what to do.
func Open(ctx context.Context, c Config) (*Store, error) {
	path, err := c.validate()
	if err != nil {
		return nil, err
	}
	file, err := statFile(path)
	if err != nil {
		return nil, err
	}
	s := &Store{path: path, file: file, now: c.Now, wal: wal{path: path + "-wal", limit: c.MaxWAL, now: c.Now},
		onSettle: c.OnSettle}
	if err := s.open(ctx, c); err != nil {
		return nil, errors.Join(explain(path, "open", err), s.Close())
	}
	return s, nil
}

func (s *Store) open(ctx context.Context, c Config) (err error) {
	if s.writer, err = openPool(c.dsn(s.path, "mode=rw", "_txlock=immediate"), 1); err != nil {
		return err
	}
	if err := checkWritable(ctx, s.writer, c.BusyTimeout); err != nil {
		return err
	}
	if s.reader, err = openPool(c.dsn(s.path, "mode=rw", "_query_only=1"), c.Readers); err != nil {
		return err
	}
	c.BusyTimeout = checkpointWait
	if s.wal.db, err = openPool(c.dsn(s.path, "mode=rw"), 1); err != nil {
		return err
	}
	return schema.Check(ctx, s.writer, schema.SQLite, "")
}

// Close ends all connections. Calls that are under way are waited for.
func (s *Store) Close() error {
	var errs []error
	for _, db := range []*sql.DB{s.reader, s.wal.db, s.writer} {
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	return errors.Join(errs...)
}

// OpenDB opens the database for a service, with the same settings as Open, so that its transactions and the relay's get on with
// each other. The file is made when it does not exist; its folder must exist. Transactions take the write lock at
// their start, unless they are begun with sql.TxOptions{ReadOnly: true}. The pool has at most Readers + 1 connections.
func OpenDB(ctx context.Context, c Config) (*sql.DB, error) {
	path, err := c.validate()
	if err != nil {
		return nil, err
	}
	if err := mustBeFolder(filepath.Dir(path)); err != nil {
		return nil, err
	}
	if _, err := statFile(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	db, err := openPool(c.dsn(path, "mode=rwc", "_txlock=immediate"), c.Readers+1)
	if err != nil {
		return nil, explain(path, "open", err)
	}
	if err := checkWritable(ctx, db, c.BusyTimeout); err != nil {
		return nil, errors.Join(explain(path, "open", err), db.Close())
	}
	return db, nil
}

// openPool returns a pool of at most n connections, which stay open. It does not connect: the first query does.
func openPool(dsn string, n int) (*sql.DB, error) {
	connector, err := driver.NewConnector(dsn)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(n)
	db.SetMaxIdleConns(n)
	return db, nil
}

// checkWritable finds what would fail later: a file or folder without rights, or one that cannot have a WAL.
func checkWritable(ctx context.Context, db *sql.DB, wait time.Duration) error {
	conn, err := connect(ctx, db, wait)
	if err != nil {
		return err
	}
	defer conn.Close()
	var mode string
	if err := conn.QueryRowContext(ctx, "pragma journal_mode").Scan(&mode); err != nil {
		return err
	}
	if mode != "wal" {
		return fmt.Errorf("%w: the journal mode is %q", errNoWAL, mode)
	}
	return conn.Raw(func(c any) error {
		readOnly, err := c.(interface{ IsReadOnly(string) (bool, error) }).IsReadOnly("main")
		if err == nil && readOnly {
			return errReadOnly
		}
		return err
	})
}

// connect returns a first connection. Of several processes that switch a new file to WAL at the same moment, SQLite sends all but
// one away at once, whatever the busy timeout is, so they come again for as long.
func connect(ctx context.Context, db *sql.DB, wait time.Duration) (*sql.Conn, error) {
	for end := time.Now().Add(wait); ; {
		conn, err := db.Conn(ctx)
		if primaryCode(err) != sqlite3.SQLITE_BUSY || time.Now().After(end) {
			return conn, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
}
