package platform

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/pillarbox-dev/pillarbox/internal/reckon"
	"github.com/pillarbox-dev/pillarbox/outbox"
)

// Records are what the platform's database can be asked at the end, or meanwhile.
type Records struct {
	db  *sql.DB
	sql statements
}

// NewRecords returns the records of a database.
func NewRecords(db *sql.DB, d outbox.Dialect) Records { return Records{db, statementsOf(d)} }

// Committed returns every event that was committed, by the platform's own tables.
func (r Records) Committed(ctx context.Context) ([]reckon.Written, error) {
	return all(ctx, r.db, r.sql.committed, func(w *reckon.Written) []any { return []any{&w.ID, &w.Key} })
}

// Held returns what the ledger says, by event id.
func (r Records) Held(ctx context.Context) (map[string]reckon.Held, error) {
	type row struct {
		id string
		reckon.Held
	}
	rows, err := all(ctx, r.db, r.sql.held, func(w *row) []any { return []any{&w.id, &w.Status, &w.Code} })
	held := make(map[string]reckon.Held, len(rows))
	for _, row := range rows {
		held[row.id] = row.Held
	}
	return held, err
}

// Count is how many rows of a table have a status.
type Count struct {
	Table, Status string
	Rows          int
}

// Counts counts the rows of each table by their status.
func (r Records) Counts(ctx context.Context) ([]Count, error) {
	return all(ctx, r.db, r.sql.counts, func(c *Count) []any { return []any{&c.Table, &c.Status, &c.Rows} })
}

// Divergence is a row that says something else than the ledger.
type Divergence struct{ UUID, Own, Ledger string }

// Diverged returns some of the rows that say something else than the ledger. There is never one.
func (r Records) Diverged(ctx context.Context) ([]Divergence, error) {
	return all(ctx, r.db, r.sql.diverged, func(d *Divergence) []any { return []any{&d.UUID, &d.Own, &d.Ledger} })
}

// all reads all rows of a query; fields are where the columns go.
func all[T any](ctx context.Context, db *sql.DB, query string, fields func(*T) []any) (found []T, err error) {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return nil, fmt.Errorf("ask the platform's database: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var row T
		if err := rows.Scan(fields(&row)...); err != nil {
			return nil, fmt.Errorf("ask the platform's database: %w", err)
		}
		found = append(found, row)
	}
	return found, rows.Err()
}
