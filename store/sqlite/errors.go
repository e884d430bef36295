package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	driver "modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/pillarbox-dev/pillarbox/outbox/schema"
	"github.com/pillarbox-dev/pillarbox/relay"
)

// ErrBusy says that another process held the write lock for longer than Config.BusyTimeout. Nothing was written; trying
// again is all that is needed.
var ErrBusy = errors.New("the database is busy")

var (
	errReadOnly = errors.New("the database cannot be written")
	errReplaced = errors.New("the file was replaced while it was open")
	errNoWAL    = errors.New("the database has no write-ahead log")
)

// Error is what an operation on the file failed with, and what to do about it.
type Error struct {
	Op   string // what was being done, such as "settle orders"
	Path string
	Hint string // for an operator; "" when there is nothing to say
	Err  error
}

func (e *Error) Error() string {
	text := fmt.Sprintf("sqlite: %s: %s: %v", e.Op, e.Path, e.Err)
	if e.Hint != "" {
		text += ": " + e.Hint
	}
	return text
}

func (e *Error) Unwrap() error { return e.Err }

// Temporary tells whether the same call may succeed later without anybody's doing: another writer was busy, or the disk is
// full until someone makes room.
func (e *Error) Temporary() bool {
	switch primaryCode(e.Err) {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_FULL:
		return true
	}
	return false
}

// Is tells errors.Is that this is an ErrBusy.
func (e *Error) Is(target error) bool {
	code := primaryCode(e.Err)
	return target == ErrBusy && (code == sqlite3.SQLITE_BUSY || code == sqlite3.SQLITE_LOCKED)
}

// primaryCode returns SQLite's result code; 0 when the error is not SQLite's.
func primaryCode(err error) int {
	var e *driver.Error
	if errors.As(err, &e) {
		return e.Code() & 0xff
	}
	return 0
}

// failed explains an error of a call. When the call's context has ended, that is the reason: what the driver says then
// is only a consequence.
func (s *Store) failed(ctx context.Context, op string, err error) error {
	if ctx.Err() != nil && !errors.Is(err, ctx.Err()) {
		err = ctx.Err()
	}
	return explain(s.path, op, err)
}

// explain adds to an error what was being done, with which file, and what helps.
func explain(path, op string, err error) error {
	if errors.Is(err, sql.ErrConnDone) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return &Error{Op: op, Path: path, Err: err}
	}
	return &Error{Op: op, Path: path, Err: err, Hint: hint(err)}
}

// hint tells an operator what to do.
func hint(err error) string {
	text := err.Error()
	switch {
	case errors.As(err, new(*hookError)):
		return "nothing was written and it is tried again, but the destination stands still meanwhile: mend what OnSettle does"
	case errors.Is(err, schema.ErrPending), errors.Is(err, schema.ErrNewer): // they have their own
		return ""
	case errors.Is(err, relay.ErrShards):
		return "SQLite has one writer, so a destination has one shard there: take 'shards' out of the configuration"
	case errors.Is(err, errNoWAL):
		return "is it on a network file system? The file must lie on a disk of this machine"
	case errors.Is(err, errReplaced), errors.Is(err, fs.ErrNotExist):
		return "restart this process, so that it opens the new one"
	case errors.Is(err, errReadOnly), errors.Is(err, fs.ErrPermission):
		return hintRights
	case strings.Contains(text, "no such table: outbox_"), strings.Contains(text, "no such column"),
		strings.Contains(text, "no such index: outbox_"):
		return "run `pillarbox migrate`"
	}
	switch primaryCode(err) {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		return "another process held the write lock for longer than the busy timeout: nothing was written and it is tried " +
			"again; look for a transaction that stays open, or raise the timeout"
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN:
		return hintRights
	case sqlite3.SQLITE_NOTADB:
		return "it is no SQLite database, or an encrypted one: check the path"
	case sqlite3.SQLITE_CORRUPT:
		return "the file is damaged: stop all that use it, keep a copy of it with its -wal, and restore a backup or run " +
			"the sqlite3 program's .recover"
	case sqlite3.SQLITE_FULL:
		return "the disk is full: make room, then it goes on by itself"
	case sqlite3.SQLITE_IOERR:
		return "the disk or the file system failed: see the system's log"
	}
	return ""
}

const hintRights = "SQLite writes the file, and a -wal and a -shm beside it: give the user that runs this process the right to " +
	"write all three and their folder"
