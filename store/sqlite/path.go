package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// filePath returns the absolute path of the file that Config.Path names.
func filePath(name string) (string, error) {
	path := name
	if rest, isURL := strings.CutPrefix(name, "sqlite:"); isURL {
		var err error
		if path, err = urlPath(rest); err != nil {
			return "", fmt.Errorf("%q: %w", name, err)
		}
	}
	switch {
	case path == "":
		return "", errors.New("the path of the database file is missing: give a path, or a URL such as sqlite:///var/lib/shop.db")
	case strings.Contains(path, ":memory:"):
		return "", fmt.Errorf("%q: a database in memory belongs to one connection, and the relay would not see it: give a file", name)
	case strings.HasPrefix(path, "file:"):
		return "", fmt.Errorf("%q: SQLite's file: URIs are not understood: give the path itself", name)
	case strings.ContainsRune(path, 0):
		return "", fmt.Errorf("%q: a path cannot hold a zero byte", name)
	}
	return filepath.Abs(path)
}

// urlPath returns the path in what follows "sqlite:": ///abs/olute, /abs/olute, rel/ative or //rel/ative.
func urlPath(rest string) (string, error) {
	rest = strings.TrimPrefix(rest, "//")
	if strings.ContainsAny(rest, "?#") {
		return "", errors.New("the URL has parameters, and there are none: write ? and # in a file's name as %3F and %23")
	}
	return url.PathUnescape(rest)
}

// dsn returns what the driver wants to be told. SQLite decodes the path again.
func (c *Config) dsn(path string, params ...string) string {
	params = append(params,
		fmt.Sprintf("_busy_timeout=%d", max(1, c.BusyTimeout/time.Millisecond)),
		"_journal_mode=wal",
		"_synchronous="+string(c.Synchronous),
		"_error_rc=1", // without it, errors carry the text of an earlier one
	)
	file := url.URL{Scheme: "file", Path: path, RawQuery: strings.Join(params, "&")}
	return file.String()
}

// statFile returns an error with a hint when the path is not that of a file. errors.Is tells fs.ErrNotExist.
func statFile(path string) (fs.FileInfo, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := mustBeFolder(filepath.Dir(path)); err != nil {
			return nil, err
		}
		return nil, &Error{Op: "open", Path: path, Err: fs.ErrNotExist,
			Hint: "check the path, or run `pillarbox migrate` to make the database"}
	case err != nil:
		return nil, explain(path, "open", err)
	case !info.Mode().IsRegular():
		return nil, &Error{Op: "open", Path: path, Err: fmt.Errorf("it is not a file (%s)", info.Mode().Type()),
			Hint: "give the path of the database file"}
	}
	return info, nil
}

// mustBeFolder returns an error with a hint when the path is not that of a folder.
func mustBeFolder(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &Error{Op: "open", Path: path, Err: errors.New("the folder does not exist"),
			Hint: "check the path, or make the folder for the user that runs this process"}
	case err != nil:
		return explain(path, "open", err)
	case !info.IsDir():
		return &Error{Op: "open", Path: path, Err: errors.New("it is not a folder"), Hint: "check the path"}
	}
	return nil
}
