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
	"maps"
	"strings"

	"github.com/pillarbox-dev/pillarbox/outbox/schema"
	"github.com/pillarbox-dev/pillarbox/relay"
)

// Ops works on one outbox. It is safe for concurrent use.
type Ops struct {
	db         *sql.DB
	dialect    schema.Dialect
	schemaName string // "" for SQLite
	queries    queries
	contract   func(*relay.Event) *relay.Outcome // of Repair; nil: there is none
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
	return &Ops{db: db, dialect: dialect, schemaName: schemaName, queries: q}, nil
}

// The statements of each database, one per file. $schema stands for the schema of the tables.
//
//go:embed postgres/*.sql sqlite/*.sql
var files embed.FS

type queries struct {
	plan, cursors, above, gaps, ledger string             // Status
	paused, pause, resume, record      string             // Pause and Resume
	isolation                          sql.IsolationLevel // of Status: one snapshot for all of it
	change                             sql.IsolationLevel // of what changes rows: each statement sees what is committed by then
	task                               taskQueries
	seqAt                              seqAtQueries
	job                                jobQueries
	retention                          retentionQueries
}

func load(dialect schema.Dialect, schemaName string) (q queries, err error) {
	texts := map[string]*string{
		"cursors": &q.cursors, "above": &q.above, "ledger": &q.ledger,
		"paused": &q.paused, "pause": &q.pause, "resume": &q.resume, "record": &q.record,
	}
	if dialect == schema.Postgres { // SQLite has no gaps, and no planner that changes its mind
		q.isolation = sql.LevelRepeatableRead
		q.change = sql.LevelReadCommitted
		texts["gaps"], texts["plan"], texts["retention_lazy"] = &q.gaps, &q.plan, &q.retention.lazy
	}
	maps.Copy(texts, q.task.files())
	maps.Copy(texts, q.seqAt.files())
	maps.Copy(texts, q.job.files())
	maps.Copy(texts, q.retention.files())
	return q, fill(dialect, schemaName, texts)
}

// fill reads statements by their names, with the schema filled in.
func fill(dialect schema.Dialect, schemaName string, texts map[string]*string) error {
	if dialect == schema.SQLite {
		schemaName = "main"
	}
	for name, text := range texts {
		data, err := files.ReadFile(dialect.String() + "/" + name + ".sql")
		if err != nil {
			return fmt.Errorf("embedded statement: %w", err)
		}
		*text = strings.ReplaceAll(string(data), "$schema", schema.Quote(schemaName))
	}
	return nil
}
