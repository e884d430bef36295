// Package ops is what operators do to an outbox: look at its state, pause and resume a destination. The CLI goes through it, so
// that each action is done in one way and leaves its trace in outbox_operator_action.
//
//	transaction → log → lanes → destination → outcome → settle
//	              └───────── looked at and steered from here ──┘
//
// It works on the tables alone, in the caller's *sql.DB, whether a relay runs or not.
package ops

import (
	"database/sql"
	"embed"
	"fmt"
	"strings"

	"github.com/pillarbox-dev/pillarbox/outbox/schema"
)

// Ops works on one outbox. It is safe for concurrent use.
type Ops struct {
	db      *sql.DB
	queries queries
}

// New returns an Ops over the tables of a schema ("" for SQLite). It does not connect: the first call does.
//
// Status needs what the relay's role may read; Pause and Resume need the operator's role. See schema.PrintRoles.
func New(db *sql.DB, dialect schema.Dialect, schemaName string) (*Ops, error) {
	if err := schema.CheckName(dialect, schemaName); err != nil {
		return nil, err
	}
	q, err := load(dialect, schemaName)
	if err != nil {
		return nil, err
	}
	return &Ops{db: db, queries: q}, nil
}

// The statements of each database, one per file. $schema stands for the schema of the tables.
//
//go:embed postgres/*.sql sqlite/*.sql
var files embed.FS

type queries struct {
	plan, cursors, above, gaps, ledger string             // Status
	paused, pause, resume, record      string             // Pause and Resume
	isolation                          sql.IsolationLevel // of Status: one snapshot for all of it
}

func load(dialect schema.Dialect, schemaName string) (q queries, err error) {
	q.isolation = sql.LevelRepeatableRead
	if dialect == schema.SQLite {
		schemaName, q.isolation = "main", sql.LevelDefault
	}
	for name, text := range map[string]*string{
		"plan": &q.plan, "cursors": &q.cursors, "above": &q.above, "gaps": &q.gaps, "ledger": &q.ledger,
		"paused": &q.paused, "pause": &q.pause, "resume": &q.resume, "record": &q.record,
	} {
		if dialect == schema.SQLite && (name == "gaps" || name == "plan") {
			continue // it has no gaps, and no planner that changes its mind
		}
		data, err := files.ReadFile(dialect.String() + "/" + name + ".sql")
		if err != nil {
			return q, fmt.Errorf("embedded statement: %w", err)
		}
		*text = strings.ReplaceAll(string(data), "$schema", schema.Quote(schemaName))
	}
	return q, nil
}
