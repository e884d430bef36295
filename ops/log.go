package ops

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/pillarbox-dev/pillarbox/outbox/schema"
)

// logWindow is how many numbers of the operators' log one page looks at.
const logWindow = 20_000

// direct fills the order of a list into a statement.
func direct(text, direction string) string { return strings.ReplaceAll(text, "$direction", direction) }

// Log returns the operators' log, the newest first unless the page says otherwise.
func (o *Ops) Log(ctx context.Context, f LogFilter, p Page) (LogPage, error) {
	page, err := o.logPage(ctx, f, p)
	if err != nil {
		return LogPage{}, fmt.Errorf("read the operators' log: %w", err)
	}
	return page, nil
}

func (o *Ops) logPage(ctx context.Context, f LogFilter, p Page) (page LogPage, err error) {
	if err := refuse(slices.Concat(f.problems(), p.problems())); err != nil {
		return page, err
	}
	name, err := listName("log", f, p)
	if err != nil {
		return page, err
	}
	at, goesOn, err := p.after(name)
	if err != nil {
		return page, err
	}
	var ends, query string
	if err := fill(o.dialect, o.schemaName, map[string]*string{"log_ends": &ends, f.statement(): &query}); err != nil {
		return page, err
	}
	tx, err := o.look(ctx, o.queries.plan)
	if err != nil {
		return page, err
	}
	defer tx.Rollback()
	var low, high int64
	if err := tx.QueryRowContext(ctx, ends).Scan(&low, &high); err != nil {
		return page, err
	}
	if goesOn && p.OldestFirst {
		low = at.Seq
	} else if goesOn {
		high = at.Seq
	}
	var rest *place
	page.Entries, rest, err = readWindow(ctx, tx, direct(query, p.direction()), f, p, low, high)
	if err != nil {
		return LogPage{}, err
	}
	if rest != nil {
		rest.List = name
		page.Next = rest.String()
	}
	return page, nil
}

// statement is the one whose index fits.
func (f LogFilter) statement() string {
	if f.Seq != 0 {
		return "log_of_event"
	}
	return "log"
}

func (f LogFilter) problems() []error {
	if f.Seq < 0 {
		return []error{fmt.Errorf("the numbers of events begin with 1, and %d is none", f.Seq)}
	}
	return nil
}

// readWindow reads a page out of the numbers low to high. What was done to one event comes out of an index and is little; else a
// page looks at a bounded part of the log.
func readWindow(ctx context.Context, tx *sql.Tx, query string, f LogFilter, p Page, low, high int64) ([]LogEntry, *place, error) {
	from, to := low, high
	if f.Seq == 0 && p.OldestFirst {
		to = min(high, low+logWindow)
	} else if f.Seq == 0 {
		from = max(low, high-logWindow)
	}
	n := p.limit()
	entries, err := readLog(ctx, tx, query, f, from, to, n+1)
	switch {
	case err != nil:
		return nil, nil, err
	case len(entries) > n:
		return entries[:n], &place{Seq: entries[n].ID}, nil
	case p.OldestFirst && to < high:
		return entries, &place{Seq: to + 1}, nil
	case !p.OldestFirst && from > low:
		return entries, &place{Seq: from - 1}, nil
	}
	return entries, nil, nil
}

// readLog returns up to n lines whose numbers lie in from to to.
func readLog(ctx context.Context, tx *sql.Tx, query string, f LogFilter, from, to int64, n int) ([]LogEntry, error) {
	args := []any{from, to, f.Operator, f.Action, f.Destination, n}
	if f.Seq != 0 {
		args = append(args, f.Seq)
	}
	entries := []LogEntry{}
	err := each(ctx, tx, query, args, func(scan func(...any) error) error {
		var e LogEntry
		var at int64
		var before, after sql.NullString
		err := scan(&e.ID, &at, &e.Operator, &e.Action, &e.Destination, &e.Seq, &e.EventID, &e.Reason, &before, &after)
		if err != nil {
			return err
		}
		e.At = *moment(sql.NullInt64{Int64: at, Valid: true})
		if before.Valid {
			e.Before = json.RawMessage(before.String)
		}
		if after.Valid {
			e.After = json.RawMessage(after.String)
		}
		entries = append(entries, e)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read outbox_operator_action: %w", err)
	}
	return entries, nil
}

// recordEvent adds a line about one event to outbox_operator_action.
func (o *Ops) recordEvent(ctx context.Context, tx *sql.Tx, action string, d Delivery, a Action, before, after any) error {
	var query string
	if err := fill(o.dialect, o.schemaName, map[string]*string{"record_event": &query}); err != nil {
		return err
	}
	was, err := jsonText(before)
	if err != nil {
		return fmt.Errorf("record what it was: %w", err)
	}
	is, err := jsonText(after)
	if err != nil {
		return fmt.Errorf("record what it becomes: %w", err)
	}
	if _, err := tx.ExecContext(ctx, query, a.By, action, d.Destination, d.Seq, nullable(d.EventID), a.Reason, was, is); err != nil {
		return fmt.Errorf("write outbox_operator_action: %w", err)
	}
	return nil
}

func nullable(text string) sql.NullString { return sql.NullString{String: text, Valid: text != ""} }

// readCommitted is for transactions that lock first and look then; SQLite has one writer anyway.
func (o *Ops) readCommitted() *sql.TxOptions {
	if !o.isPostgres() {
		return nil
	}
	return &sql.TxOptions{Isolation: sql.LevelReadCommitted}
}

func (o *Ops) isPostgres() bool { return o.dialect == schema.Postgres }
