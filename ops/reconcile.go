package ops

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/pillarbox-dev/pillarbox/outbox/schema"
)

// ReconcileConfig says what is compared with what.
type ReconcileConfig struct {
	// Queries are the user's own.
	Queries []ReconcileQuery
	// Ledgers names the destinations that keep a ledger: what they were to deliver is compared with it. An event that a destination
	// was not asked to deliver when it passed (its topics were widened, or its ledger was off for a time) looks as if it was lost.
	Ledgers []string
	// Inboxes are the consumers that are asked what has arrived.
	Inboxes []InboxCheck
	// Since is how far back the log is looked at, by created_at. 0: all that is retained.
	Since time.Duration
	// Progress, unless nil, lets a run go on where the last one ended: Since is then for what has no progress yet. It is changed.
	Progress ReconcileProgress
	// Limit is up to how many findings of a check are counted. Default 10,000.
	Limit int
}

// ReconcileQuery is a query that returns what should not be: a row of the domain without its event, for example. It runs in a
// transaction that can only read, for 30 s at most.
type ReconcileQuery struct {
	Name string
	SQL  string
	// Hint says what to do when it returns something.
	Hint string
}

// InboxCheck compares what was PUBLISHED to a destination with the inbox of a consumer.
type InboxCheck struct {
	Destination string
	Consumer    string
	// DB holds outbox_inbox, in a schema ("" for SQLite).
	DB      *sql.DB
	Dialect schema.Dialect
	Schema  string
	// After is how long the consumer may take. Default 10 minutes.
	After time.Duration
	// Keeps is how long the consumer keeps its inbox: what was published longer ago is not asked for. 0: for ever.
	Keeps time.Duration
}

// DefaultAfter is InboxCheck.After when it is 0.
const DefaultAfter = 10 * time.Minute

// The names of the checks that are not the user's.
const (
	checkLedger = "ledger"
	checkInbox  = "inbox"
)

const (
	reconcileShown   = 100 // rows of a finding
	reconcileLimit   = 10_000
	reconcileTimeout = 30 * time.Second // of one statement of a user
)

// check returns every problem of the configuration.
func (c *ReconcileConfig) check() error {
	problems := []error{CheckQueries(c.Queries)}
	wrong := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	for _, i := range c.Inboxes {
		if i.Destination == "" || i.Consumer == "" || i.DB == nil {
			wrong("inbox of %q at %q: it wants a destination, a consumer and a database", i.Consumer, i.Destination)
		}
		if err := schema.CheckName(i.Dialect, i.Schema); err != nil {
			wrong("inbox of %q at %q: %w", i.Consumer, i.Destination, err)
		}
		if i.After < 0 || i.Keeps < 0 || i.Keeps > 0 && i.Keeps <= cmp.Or(i.After, DefaultAfter) {
			wrong("inbox of %q at %q: after and keeps are not negative, and keeps is longer than after", i.Consumer, i.Destination)
		}
	}
	if c.Since < 0 || c.Limit < 0 {
		wrong("since and limit are not negative")
	}
	return errors.Join(problems...)
}

// Checks returns the names of what is compared.
func (c *ReconcileConfig) Checks() (names []string) {
	for _, q := range c.Queries {
		names = append(names, q.Name)
	}
	if len(c.Ledgers) > 0 {
		names = append(names, checkLedger)
	}
	if len(c.Inboxes) > 0 {
		names = append(names, checkInbox)
	}
	return names
}

// CheckQueries returns every problem of a user's queries, besides what the database will say of their SQL.
func CheckQueries(queries []ReconcileQuery) error {
	var problems []error
	wrong := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	names := map[string]bool{checkLedger: true, checkInbox: true}
	for i, q := range queries {
		switch {
		case q.Name == "":
			wrong("query %d has no name: its findings are told by it", i+1)
		case names[q.Name]:
			wrong("query %q: the name is taken: give each query its own, other than ledger and inbox", q.Name)
		}
		names[q.Name] = true
		if statement(q.SQL) == "" {
			wrong("query %q has no SQL: write a select that returns what should not be", q.Name)
		}
	}
	return errors.Join(problems...)
}

// Reconcile compares: the user's queries, the log against the ledgers, what was published against the inboxes. What is found is
// in the report, and so is a check that could not be made; the error is for a configuration that makes no sense, and for a
// database that does not answer at all. It reads in small chunks and holds nobody up.
func (o *Ops) Reconcile(ctx context.Context, c ReconcileConfig) (ReconcileReport, error) {
	report := ReconcileReport{Checks: []string{}, Findings: []Finding{}}
	if err := c.check(); err != nil {
		return report, fmt.Errorf("reconcile: %w", err)
	}
	if c.Limit == 0 {
		c.Limit = reconcileLimit
	}
	r, err := o.newReconciliation(ctx, c)
	if err != nil {
		return report, fmt.Errorf("reconcile: %w", err)
	}
	report.At = r.at
	for _, q := range c.Queries {
		f, err := o.ask(ctx, q, c.Limit)
		report.add(q.Name, f, err)
	}
	if len(c.Ledgers) > 0 {
		f, err := r.ledgers(ctx)
		report.add(checkLedger, f, err)
	}
	if len(c.Inboxes) > 0 {
		f, err := r.inboxes(ctx)
		report.add(checkInbox, f, err)
	}
	if err := ctx.Err(); err != nil {
		return report, fmt.Errorf("reconcile: %w", err)
	}
	return report, nil
}

// add takes in what a check has found.
func (r *ReconcileReport) add(check string, f Finding, err error) {
	r.Checks = append(r.Checks, check)
	if err != nil {
		if r.Errors == nil {
			r.Errors = map[string]string{}
		}
		r.Errors[check] = err.Error()
	}
	if f.Count > 0 {
		f.Check = check
		r.Findings = append(r.Findings, f)
	}
}

// Well tells that every check was made and nothing was found.
func (r *ReconcileReport) Well() bool { return len(r.Findings) == 0 && len(r.Errors) == 0 }

// reconciliation is one run.
type reconciliation struct {
	*Ops
	config  ReconcileConfig
	at      time.Time // the database's clock
	first   int64     // of the log, going by Since
	cursors map[string]*reconcileCursor
	queries reconcileQueries
}

type reconcileQueries struct{ clock, cursors, log, ledger, published string }

// reconcileCursor is how far a destination has come. What it has settled below its position and outside its gaps has a row.
type reconcileCursor struct {
	position int64
	topics   string // JSON array
	gaps     gapRanges
	first    int64 // in its ledger; 0: it is empty
}

// newReconciliation looks at the cursors first: what is read after that can only be more than they say.
func (o *Ops) newReconciliation(ctx context.Context, c ReconcileConfig) (*reconciliation, error) {
	r := &reconciliation{Ops: o, config: c, cursors: map[string]*reconcileCursor{}}
	q := &r.queries
	if err := fill(o.dialect, o.schemaName, map[string]*string{
		"clock": &q.clock, "reconcile_cursors": &q.cursors, "reconcile_log": &q.log, "reconcile_ledger": &q.ledger,
		"reconcile_published": &q.published,
	}); err != nil {
		return nil, err
	}
	tx, err := o.db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return nil, err
	}
	defer tx.Rollback()
	var now int64
	if err := tx.QueryRowContext(ctx, q.clock).Scan(&now); err != nil {
		return nil, fmt.Errorf("read the database's clock: %w", err)
	}
	r.at = time.UnixMicro(now).UTC()
	if err := each(ctx, tx, q.cursors, nil, r.takeCursor); err != nil {
		return nil, fmt.Errorf("read the cursors: %w", err)
	}
	r.first = 1
	if c.Since > 0 {
		if r.first, _, err = o.createdBetween(ctx, tx, r.at.Add(-c.Since), time.Time{}); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// takeCursor takes a row. A destination with several shards is as far as the last of them.
func (r *reconciliation) takeCursor(scan func(...any) error) error {
	var name, gapsText string
	c := &reconcileCursor{}
	if err := scan(&name, &c.position, &c.topics, &gapsText, &c.first); err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(gapsText), &c.gaps); err != nil {
		return fmt.Errorf("gaps of %s: %w", name, err)
	}
	if other := r.cursors[name]; other != nil {
		c.position = min(c.position, other.position)
		c.gaps = append(c.gaps, other.gaps...)
	}
	c.gaps = joined(c.gaps)
	r.cursors[name] = c
	return nil
}
