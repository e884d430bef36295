package wire

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/pillarbox-dev/pillarbox/internal/config"
	"github.com/pillarbox-dev/pillarbox/ops"
)

// checkReconcile asks whether the database takes the queries, and whether the inboxes can be read.
func checkReconcile(ctx context.Context, c *config.Config, db *sql.DB) (findings []Finding) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	if len(c.Reconcile.Queries) > 0 {
		findings = append(findings, Finding{
			Part: "reconcile", About: fmt.Sprintf("%d queries", len(c.Reconcile.Queries)), Problems: checkQueries(ctx, c, db),
		})
	}
	for _, inbox := range c.Reconcile.Inboxes {
		f := Finding{Part: "inbox of " + inbox.Consumer, About: inbox.Database.URL.String()}
		if err := checkInbox(ctx, inbox); err != nil {
			f.Problems = []error{err}
		}
		findings = append(findings, f)
	}
	return findings
}

func checkQueries(ctx context.Context, c *config.Config, db *sql.DB) (problems []error) {
	if db == nil {
		return []error{errors.New("its queries ask the database, which is not there: mend that first")}
	}
	o, err := ops.New(db, c.Database.Dialect(), c.Database.SchemaName())
	if err != nil {
		return []error{err}
	}
	for _, q := range c.Reconcile.Config(nil).Queries {
		if err := o.TryQuery(ctx, q); err != nil {
			problems = append(problems, fmt.Errorf("query %s: %w", q.Name, err))
		}
	}
	return problems
}

// checkInbox reads nothing of the inbox: it asks for the rows of a consumer that has none.
func checkInbox(ctx context.Context, inbox config.Inbox) error {
	pool, err := OpenDB(ctx, inbox.Database, false)
	if err != nil {
		return err
	}
	defer pool.Close()
	if _, err := pool.ExecContext(ctx, "select 1 from outbox_inbox where consumer = '' and event_id = ''"); err != nil {
		return fmt.Errorf("read outbox_inbox: %w: see that the tables are there, in the schema %q, and grant select on "+
			"outbox_inbox to this role", err, inbox.Database.SchemaName())
	}
	return nil
}
