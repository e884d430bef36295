package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/outbox/schema"
	"github.com/pillarbox-dev/pillarbox/store/sqlite"
)

func TestConfigProblemsComeAllAtOnce(t *testing.T) {
	c := sqlite.Config{BusyTimeout: time.Hour, Synchronous: "off", Readers: -1, MaxWAL: 10}
	for name, open := range openers {
		err := open(t.Context(), c)
		if err == nil {
			t.Fatalf("%s: no error", name)
		}
		for _, want := range []string{"path", "busy timeout 1h0m0s", `"off"`, "readers -1", "10 bytes"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: error %q does not say %q", name, err, want)
			}
		}
	}
}

// openers are the ways to open a file.
var openers = map[string]func(context.Context, sqlite.Config) error{
	"Open": func(ctx context.Context, c sqlite.Config) error {
		s, err := sqlite.Open(ctx, c)
		if err != nil {
			return err
		}
		return s.Close()
	},
	"OpenDB": func(ctx context.Context, c sqlite.Config) error {
		db, err := sqlite.OpenDB(ctx, c)
		if err != nil {
			return err
		}
		return db.Close()
	},
}

func TestPaths(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.Mkdir("data", 0o755); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ path, file string }{
		{filepath.Join(dir, "absolute.db"), "absolute.db"},
		{"relative.db", "relative.db"},
		{"./data/relative.db", "data/relative.db"},
		{"sqlite://" + dir + "/url.db", "url.db"},
		{"sqlite:" + dir + "/short.db", "short.db"},
		{"sqlite:data/url.db", "data/url.db"},
		{"sqlite://data/host.db", "data/host.db"},
		{"sqlite:a%20b%3F.db", "a b?.db"},
		{"a b?c#d&e=f%41;ü.db", "a b?c#d&e=f%41;ü.db"},
	} {
		c := sqlite.Config{Path: test.path}
		db := openDB(t, c)
		if _, err := schema.Migrate(t.Context(), db, schema.SQLite, ""); err != nil {
			t.Errorf("%s: %v", test.path, err)
		}
		if _, err := os.Stat(filepath.Join(dir, test.file)); err != nil {
			t.Errorf("%s: want the file %s: %v", test.path, test.file, err)
		}
		openStore(t, c)
	}
	for path, want := range map[string]string{
		"":                       "missing",
		"sqlite:":                "missing",
		":memory:":               "in memory",
		"sqlite::memory:":        "in memory",
		"file:shop.db":           "give the path itself",
		"sqlite:shop.db?cache=x": "parameters",
		"sqlite:%zz.db":          "%zz",
		"a\x00b":                 "zero byte",
	} {
		for name, open := range openers {
			if err := open(t.Context(), sqlite.Config{Path: path}); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s(%q): got %v, want an error with %q", name, path, err, want)
			}
		}
	}
}

func TestSettings(t *testing.T) {
	for synchronous, want := range map[sqlite.Synchronous]int64{"": 2, sqlite.Full: 2, sqlite.Normal: 1} {
		d := newDatabase(t, sqlite.Config{Synchronous: synchronous, BusyTimeout: 1234 * time.Millisecond})
		if got := number(t, d.db, "pragma synchronous"); got != want {
			t.Errorf("synchronous %q is %d in the database, want %d", synchronous, got, want)
		}
		if got := number(t, d.db, "pragma busy_timeout"); got != 1234 {
			t.Errorf("busy timeout %d ms, want 1234", got)
		}
		var mode string
		if err := d.db.QueryRowContext(t.Context(), "pragma journal_mode").Scan(&mode); err != nil || mode != "wal" {
			t.Errorf("journal mode %q, %v, want wal", mode, err)
		}
	}
}

// A transaction of a service takes the write lock when it begins, so a second one waits instead of failing half-way.
func TestServiceTransactionsWait(t *testing.T) {
	d := newDatabase(t, sqlite.Config{BusyTimeout: 100 * time.Millisecond})
	first, err := d.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Rollback()
	if tx, err := d.db.BeginTx(t.Context(), nil); err == nil {
		tx.Rollback()
		t.Error("a second transaction that may write began beside the first")
	}
	reading, err := d.db.BeginTx(t.Context(), &sql.TxOptions{ReadOnly: true})
	if err != nil {
		t.Fatalf("a transaction that reads, beside one that writes: %v", err)
	}
	reading.Rollback()
}

// A service and its neighbours that start at the same time find no file, and all of them make it.
func TestOpenNewFileTogether(t *testing.T) {
	for range 100 {
		path := filepath.Join(t.TempDir(), "new.db")
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				db, err := sqlite.OpenDB(t.Context(), sqlite.Config{Path: path, BusyTimeout: time.Minute})
				if err != nil {
					t.Error(err)
					return
				}
				defer db.Close()
				if _, err := db.ExecContext(t.Context(), "create table if not exists business (x integer)"); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
}

func TestOpenErrors(t *testing.T) {
	migrated := func(t *testing.T, path string) *sql.DB {
		db := openDB(t, sqlite.Config{Path: path})
		if _, err := schema.Migrate(t.Context(), db, schema.SQLite, ""); err != nil {
			t.Fatal(err)
		}
		return db
	}
	write := func(t *testing.T, path, text string) {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		name    string
		prepare func(t *testing.T, path string)
		want    []string // in the message
		is      error
	}{
		{"no file", func(*testing.T, string) {}, []string{"run `pillarbox migrate`"}, fs.ErrNotExist},
		{"a folder", func(t *testing.T, path string) {
			if err := os.Mkdir(path, 0o755); err != nil {
				t.Fatal(err)
			}
		}, []string{"not a file", "path of the database file"}, nil},
		{"a text", func(t *testing.T, path string) { write(t, path, strings.Repeat("not a database\n", 100)) },
			[]string{"no SQLite database"}, nil},
		{"an empty file", func(t *testing.T, path string) { write(t, path, "") },
			[]string{"run `pillarbox migrate`"}, schema.ErrPending},
		{"never migrated", func(t *testing.T, path string) {
			db := openDB(t, sqlite.Config{Path: path})
			if _, err := db.ExecContext(t.Context(), "create table business (id text)"); err != nil {
				t.Fatal(err)
			}
		}, []string{"lacks 0001_outbox", "run `pillarbox migrate`"}, schema.ErrPending},
		{"migrated by a newer version", func(t *testing.T, path string) {
			if _, err := migrated(t, path).ExecContext(t.Context(), "insert into outbox_migration (version) values (999)"); err != nil {
				t.Fatal(err)
			}
		}, []string{"999"}, schema.ErrNewer},
		{"damaged", func(t *testing.T, path string) {
			if err := migrated(t, path).Close(); err != nil {
				t.Fatal(err)
			}
			pages, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			copy(pages[100:], strings.Repeat("damage", 500)) // behind the header of the file
			write(t, path, string(pages))
		}, []string{"damaged", "keep a copy"}, nil},
		{"not yet in WAL mode, and in use", func(t *testing.T, path string) {
			db, err := sql.Open("sqlite", path)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { db.Close() })
			db.SetMaxOpenConns(1)
			if _, err := db.ExecContext(t.Context(), "create table business (id text); begin exclusive"); err != nil {
				t.Fatal(err)
			}
		}, []string{"busy timeout"}, sqlite.ErrBusy},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "shop.db")
			test.prepare(t, path)
			err := openers["Open"](t.Context(), sqlite.Config{Path: path, BusyTimeout: 100 * time.Millisecond})
			if err == nil || test.is != nil && !errors.Is(err, test.is) {
				t.Fatalf("got %v, want an error that is %v", err, test.is)
			}
			for _, want := range append(test.want, path) {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not say %q", err, want)
				}
			}
		})
	}

	t.Run("no folder", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "nowhere", "shop.db")
		for name, open := range openers {
			if err := open(t.Context(), sqlite.Config{Path: path}); err == nil || !strings.Contains(err.Error(), "folder does not exist") {
				t.Errorf("%s: got %v, want the missing folder named", name, err)
			}
		}
	})
}

// A context that has ended is no fault of the file.
func TestOpenCancelled(t *testing.T) {
	d := newDatabase(t, sqlite.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, open := range openers {
		if err := open(ctx, sqlite.Config{Path: d.path}); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: got %v, want context.Canceled", name, err)
		}
	}
}

// A user without rights is told which ones are needed. Root may do everything, so another user tries it.
func TestOpenWithoutRights(t *testing.T) {
	dir, binary := openToAll(t)
	nobody := &syscall.Credential{Uid: 65534, Gid: 65534}
	if os.Geteuid() != 0 {
		nobody = nil // this user has no more rights than what the modes say
	}
	for _, test := range []struct {
		name         string
		folder, file fs.FileMode
		want         string
	}{
		{"all rights", 0o777, 0o666, "opened"},
		{"file cannot be written", 0o777, 0o444, "the right to write"},
		{"file cannot be read", 0o777, 0o000, "the right to write"},
		{"folder cannot be written", 0o555, 0o666, "the right to write"},
		{"folder cannot be entered", 0o000, 0o666, "the right to write"},
	} {
		t.Run(test.name, func(t *testing.T) {
			folder := filepath.Join(dir, strings.ReplaceAll(test.name, " ", "-"))
			if err := os.Mkdir(folder, 0o777); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(folder, "shop.db")
			db := openDB(t, sqlite.Config{Path: path})
			if _, err := schema.Migrate(t.Context(), db, schema.SQLite, ""); err != nil {
				t.Fatal(err)
			}
			if err := db.Close(); err != nil { // takes -wal and -shm away
				t.Fatal(err)
			}
			if err := errors.Join(os.Chmod(path, test.file), os.Chmod(folder, test.folder)); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.Chmod(folder, 0o777) }) // or it could not be removed
			c := startChildAs(t, binary, nobody, "open", path)
			if got := c.line(t); !strings.Contains(got, test.want) {
				t.Errorf("got %q, want it to say %q", got, test.want)
			}
			c.wait(t)
		})
	}
}

// openToAll returns a folder that every user can reach, and in it a copy of the test binary.
func openToAll(t *testing.T) (dir, binary string) {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "sqlite-rights")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	binary = filepath.Join(dir, "test-binary")
	if err := os.WriteFile(binary, program, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir, binary
}
