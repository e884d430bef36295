package ops

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pillarbox-dev/pillarbox/outbox/schema"
)

// MaxReconcileValue is how much of a value is shown, in bytes.
const MaxReconcileValue = 500

// statement is a user's SQL without what ends it.
func statement(text string) string { return strings.TrimRight(text, "; \t\r\n") }

// ask runs a query of the user's. It stands in brackets, so that it is one select and no more, and gives so many rows and no
// more.
func (o *Ops) ask(ctx context.Context, q ReconcileQuery, limit int) (Finding, error) {
	f := Finding{Rows: []map[string]any{}, Hint: q.Hint}
	ctx, cancel := context.WithTimeout(ctx, reconcileTimeout)
	defer cancel()
	err := o.reading(ctx, func(query func(string, ...any) (*sql.Rows, error)) error {
		rows, err := query(fmt.Sprintf("select * from (\n%s\n) as found limit %d", statement(q.SQL), limit+1))
		if err != nil {
			return err
		}
		defer rows.Close()
		return f.take(rows, int64(limit))
	})
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = fmt.Errorf("it took longer than %v: give it an index, or let it look at less", reconcileTimeout)
	}
	if err != nil {
		err = fmt.Errorf("%w%s", err, readHint(err, "the tables of the query"))
	}
	return f, err
}

// TryQuery tells whether the database takes a query: its SQL, and the rights on what it reads. It costs nothing, since it asks
// for no row.
func (o *Ops) TryQuery(ctx context.Context, q ReconcileQuery) error {
	_, err := o.ask(ctx, q, -1)
	return err
}

// take counts rows and keeps the first ones.
func (f *Finding) take(rows *sql.Rows, limit int64) error {
	columns, err := rows.Columns()
	if err != nil {
		return err
	}
	values, into := make([]any, len(columns)), make([]any, len(columns))
	for i := range values {
		into[i] = &values[i]
	}
	for rows.Next() {
		if f.Count == limit {
			f.AtLeast = true
			break
		}
		f.Count++
		if len(f.Rows) == reconcileShown {
			continue
		}
		if err := rows.Scan(into...); err != nil {
			return err
		}
		row := make(map[string]any, len(columns))
		for i, name := range columns {
			row[name] = shown(values[i])
		}
		f.Rows = append(f.Rows, row)
	}
	return rows.Err()
}

// shown is a value as JSON can have it.
func shown(value any) any {
	switch v := value.(type) {
	case []byte:
		if utf8.Valid(v) {
			return shortened(string(v), MaxReconcileValue)
		}
		return shortened(hex.EncodeToString(v), MaxReconcileValue)
	case string:
		return shortened(v, MaxReconcileValue)
	case time.Time:
		return v.UTC().Format(time.RFC3339Nano)
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Sprint(v) // JSON has no number for it
		}
		return v
	case nil, bool, int64:
		return v
	}
	return shortened(fmt.Sprint(value), MaxReconcileValue)
}

// reading calls do with a connection that cannot write.
func (o *Ops) reading(ctx context.Context, do func(query func(string, ...any) (*sql.Rows, error)) error) error {
	if o.dialect == schema.Postgres {
		tx, err := o.db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if _, err := tx.ExecContext(ctx, fmt.Sprintf("set local statement_timeout = %d", reconcileTimeout.Milliseconds())); err != nil {
			return err
		}
		return do(func(text string, args ...any) (*sql.Rows, error) { return tx.QueryContext(ctx, text, args...) })
	}
	conn, err := o.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.ExecContext(ctx, "pragma query_only = on"); err != nil {
		return err
	}
	err = do(func(text string, args ...any) (*sql.Rows, error) { return conn.QueryContext(ctx, text, args...) })
	_, off := conn.ExecContext(context.WithoutCancel(ctx), "pragma query_only = off")
	if off != nil { // never back into the pool like that
		_ = conn.Raw(func(any) error { return driver.ErrBadConn })
	}
	return errors.Join(err, off)
}
