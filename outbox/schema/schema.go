// Package schema holds the tables of the outbox: the log that a service's transactions write to, and the cursors and the
// ledger that the relay keeps. It applies them, prints them, and tells whether they are there.
//
//	transaction → log → lanes → destination → outcome → settle
//	              └─ outbox_event         └─ outbox_cursor, outbox_delivery ─┘
//
// The migrations are plain SQL files, embedded. Migrate applies what is missing; Print gives the whole as text for another
// migration tool; PrintRoles gives the grants. They never drop anything and may be applied again. PostgreSQL 14 or later,
// SQLite 3.38 or later. No driver is imported: the caller brings its own, through database/sql.
package schema

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// Dialect is the database that the tables are for. The zero value is none.
type Dialect uint8

const (
	Postgres Dialect = iota + 1
	SQLite
)

// String returns the dialect's name as it stands in a configuration: postgres or sqlite.
func (d Dialect) String() string {
	switch d {
	case Postgres:
		return "postgres"
	case SQLite:
		return "sqlite"
	}
	return fmt.Sprintf("Dialect(%d)", uint8(d))
}

func (d Dialect) check() error {
	if d != Postgres && d != SQLite {
		return fmt.Errorf("%v is no dialect: use schema.Postgres or schema.SQLite", d)
	}
	return nil
}

// Migration is one step of the schema.
type Migration struct {
	// Version counts from 1; outbox_migration holds those that were applied.
	Version int
	// Name says what it is about, like status_view.
	Name string
	// SQL is its text, several statements. Names are unqualified.
	SQL string
}

// String returns the migration's name as its file has it, like 0002_status_view.
func (m Migration) String() string { return fmt.Sprintf("%04d_%s", m.Version, m.Name) }

//go:embed postgres/*.sql sqlite/*.sql
var files embed.FS

// Migrations returns all steps that this version of the library knows, in order.
func Migrations(d Dialect) ([]Migration, error) {
	if err := d.check(); err != nil {
		return nil, err
	}
	names, err := fs.Glob(files, d.String()+"/*.sql") // sorted: by version
	if err != nil {
		return nil, err
	}
	all := make([]Migration, len(names))
	for i, file := range names {
		version, name, _ := strings.Cut(strings.TrimSuffix(path.Base(file), ".sql"), "_")
		text, err := files.ReadFile(file)
		if err != nil {
			return nil, err
		}
		all[i] = Migration{Name: name, SQL: string(text)}
		if all[i].Version, err = strconv.Atoi(version); err != nil || all[i].Version != i+1 {
			return nil, fmt.Errorf("embedded migration %s: want its name to start with %04d_", file, i+1)
		}
	}
	return all, nil
}
