package ops

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/pillarbox-dev/pillarbox/outbox/schema"
)

// healthRows is up to how many rows of a table are counted in SQLite, which keeps no statistics.
const healthRows = 100_000

// Health looks at the database itself: sizes, dead rows, old transactions, locks. It reads catalogues and counters, no table of
// any size, and gives up after seconds rather than wait for a lock.
func (o *Ops) Health(ctx context.Context) (Health, error) {
	look := o.postgresHealth
	if o.dialect == schema.SQLite {
		look = o.sqliteHealth
	}
	tx, err := o.db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return Health{}, fmt.Errorf("look at the database's health: %w", err)
	}
	defer tx.Rollback()
	h, err := look(ctx, tx)
	if err != nil {
		return Health{}, fmt.Errorf("look at the database's health: %w", err)
	}
	return h, nil
}

// vitals are what PostgreSQL tells besides a Health, for the advice.
type vitals struct {
	autovacuum  bool    // of the server
	scaleFactor float64 // of the server, autovacuum_vacuum_scale_factor
	seesAll     bool    // the role sees the sessions of others
	tables      []tableVitals
	oldest      blocker
	slots       []slot
	gaps        []cursorGaps
}

type tableVitals struct {
	TableHealth
	autovacuum  bool
	scaleFactor sql.NullFloat64 // of the table
	invalid     string          // names of indexes that are not valid
}

// blocker is who holds vacuum back.
type blocker struct {
	what, remedy string
	age          time.Duration
}

type slot struct {
	name string
	age  int64 // transactions
}

type cursorGaps struct {
	destination string
	shard       int
	ranges      int64
}

// healthQueries are the statements of PostgreSQL.
type healthQueries struct{ limits, server, tables, oldest, slots, locks, gaps string }

func (o *Ops) postgresHealth(ctx context.Context, tx *sql.Tx) (Health, error) {
	var q healthQueries
	if err := fill(o.dialect, o.schemaName, map[string]*string{
		"health_limits": &q.limits, "health_server": &q.server, "health_tables": &q.tables, "health_oldest": &q.oldest,
		"health_slots": &q.slots, "health_locks": &q.locks, "health_gaps": &q.gaps,
	}); err != nil {
		return Health{}, err
	}
	h, v := Health{Tables: []TableHealth{}}, vitals{}
	for _, part := range []struct {
		name string
		look func() error
	}{
		{"limits", func() error { _, err := tx.ExecContext(ctx, q.limits); return err }},
		{"server", func() error { return h.askServer(ctx, tx, q.server, &v) }},
		{"tables", func() error { return h.askTables(ctx, tx, q.tables, o.schemaName, &v) }},
		{"oldest transaction", func() error { return h.askOldest(ctx, tx, q.oldest, &v) }},
		{"replication slots", func() error { return v.askSlots(ctx, tx, q.slots) }},
		{"locks", func() error { return tx.QueryRowContext(ctx, q.locks, o.schemaName).Scan(&h.LockWaits) }},
		{"gaps", func() error { return v.askGaps(ctx, tx, q.gaps) }},
	} {
		if err := part.look(); err != nil {
			return h, fmt.Errorf("%s: %w", part.name, err)
		}
	}
	h.Advice = advise(h, v)
	return h, nil
}

func (h *Health) askServer(ctx context.Context, tx *sql.Tx, query string, v *vitals) error {
	var now int64
	err := tx.QueryRowContext(ctx, query).
		Scan(&h.Version, &now, &h.DatabaseBytes, &v.autovacuum, &v.scaleFactor, &v.seesAll)
	h.At = time.UnixMicro(now).UTC()
	return err
}

func (h *Health) askTables(ctx context.Context, tx *sql.Tx, query, schemaName string, v *vitals) error {
	return each(ctx, tx, query, []any{schemaName}, func(scan func(...any) error) error {
		var t tableVitals
		var vacuumed, analyzed sql.NullInt64
		err := scan(&t.Table, &t.Rows, &t.TableBytes, &t.IndexBytes, &t.DeadRows, &vacuumed, &analyzed,
			&t.autovacuum, &t.scaleFactor, &t.invalid)
		t.LastVacuum, t.LastAnalyzed = moment(vacuumed), moment(analyzed)
		v.tables, h.Tables = append(v.tables, t), append(h.Tables, t.TableHealth)
		return err
	})
}

func (h *Health) askOldest(ctx context.Context, tx *sql.Tx, query string, v *vitals) error {
	var age int64
	err := tx.QueryRowContext(ctx, query).Scan(&v.oldest.what, &age, &v.oldest.remedy)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	v.oldest.age = time.Duration(age) * time.Microsecond
	h.OldestTransaction = Seconds(v.oldest.age)
	return err
}

func (v *vitals) askSlots(ctx context.Context, tx *sql.Tx, query string) error {
	return each(ctx, tx, query, nil, func(scan func(...any) error) error {
		var s slot
		err := scan(&s.name, &s.age)
		v.slots = append(v.slots, s)
		return err
	})
}

func (v *vitals) askGaps(ctx context.Context, tx *sql.Tx, query string) error {
	return each(ctx, tx, query, nil, func(scan func(...any) error) error {
		var g cursorGaps
		err := scan(&g.destination, &g.shard, &g.ranges)
		v.gaps = append(v.gaps, g)
		return err
	})
}

// pages is what SQLite tells besides a Health, for the advice.
type pages struct {
	size, count, free int64
	journal           string
}

func (o *Ops) sqliteHealth(ctx context.Context, tx *sql.Tx) (Health, error) {
	var server, tables string
	if err := fill(o.dialect, o.schemaName, map[string]*string{
		"health_server": &server, "health_tables": &tables,
	}); err != nil {
		return Health{}, err
	}
	h, p, now, file := Health{Tables: []TableHealth{}}, pages{}, int64(0), ""
	if err := tx.QueryRowContext(ctx, server).
		Scan(&h.Version, &now, &p.size, &p.count, &p.free, &p.journal, &file); err != nil {
		return h, fmt.Errorf("file: %w", err)
	}
	h.At, h.DatabaseBytes = time.UnixMicro(now).UTC(), p.size*p.count
	err := each(ctx, tx, tables, []any{healthRows}, func(scan func(...any) error) error {
		h.Tables = append(h.Tables, TableHealth{})
		last := &h.Tables[len(h.Tables)-1]
		return scan(&last.Table, &last.Rows)
	})
	if err != nil {
		return h, fmt.Errorf("tables: %w", err)
	}
	if file != "" { // "" is a database in memory
		info, err := os.Stat(file + "-wal")
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return h, fmt.Errorf("WAL file: %w", err)
		}
		if err == nil {
			h.WALBytes = info.Size()
		}
	}
	h.Advice = adviseSQLite(h, p)
	return h, nil
}

// each calls take for each row of a query.
func each(ctx context.Context, tx *sql.Tx, query string, args []any, take func(scan func(...any) error) error) error {
	rows, err := tx.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := take(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}
