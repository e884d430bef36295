package config

import (
	"fmt"
	"slices"
	"time"

	"github.com/pillarbox-dev/pillarbox/ops"
)

// Reconcile says what is compared with what. See ops.ReconcileConfig.
type Reconcile struct {
	Every   Duration         `yaml:"every,omitempty"` // 0: by command alone
	Since   Duration         `yaml:"since,omitempty"` // default DefaultSince
	Ledger  *bool            `yaml:"ledger,omitempty"`
	Queries []ReconcileQuery `yaml:"queries,omitempty"`
	Inboxes []Inbox          `yaml:"inbox,omitempty"`
}

// DefaultSince is how far back a reconciliation looks when it has not run before.
const DefaultSince = 24 * time.Hour

// ReconcileQuery is a query that returns what should not be.
type ReconcileQuery struct {
	Name string   `yaml:"name" rule:"required" hint:"findings are told by it"`
	SQL  Verbatim `yaml:"sql" rule:"required" hint:"write a select that returns what should not be"`
	Hint string   `yaml:"hint,omitempty"`
}

// Inbox is a consumer that is asked what has arrived.
type Inbox struct {
	Destination string   `yaml:"destination" rule:"required" hint:"say whose deliveries the consumer handles"`
	Consumer    string   `yaml:"consumer" rule:"required" hint:"it is the column consumer of outbox_inbox"`
	Database    Database `yaml:"database" rule:"required" hint:"say where outbox_inbox is: database: {url: …}"`
	After       Duration `yaml:"after,omitempty"`
	Keeps       Duration `yaml:"keeps,omitempty"`
}

// Config returns the settings, without the databases of the inboxes, which are for the caller to open.
func (r Reconcile) Config(destinations map[string]Destination) ops.ReconcileConfig {
	c := ops.ReconcileConfig{Since: time.Duration(r.Since)}
	if c.Since == 0 {
		c.Since = DefaultSince
	}
	for _, q := range r.Queries {
		c.Queries = append(c.Queries, ops.ReconcileQuery{Name: q.Name, SQL: string(q.SQL), Hint: q.Hint})
	}
	for name, d := range destinations {
		if orTrue(r.Ledger) && orTrue(d.Ledger) {
			c.Ledgers = append(c.Ledgers, name)
		}
	}
	for _, i := range r.Inboxes {
		c.Inboxes = append(c.Inboxes, ops.InboxCheck{
			Destination: i.Destination, Consumer: i.Consumer, Dialect: i.Database.Dialect(), Schema: i.Database.SchemaName(),
			After: time.Duration(i.After), Keeps: time.Duration(i.Keeps),
		})
	}
	return c
}

func (d *decoder) checkReconcile(c *Config) {
	unread := func(q ops.ReconcileQuery) bool { return q.Name == "" || q.SQL == "" } // that has been told
	read := slices.DeleteFunc(c.Reconcile.Config(nil).Queries, unread)
	if err := ops.CheckQueries(read); err != nil {
		for _, problem := range Each(err) {
			d.wrong("reconcile.queries", "reconcile.queries: "+problem.Error(), "")
		}
	}
	for n, i := range c.Reconcile.Inboxes {
		path := fmt.Sprintf("reconcile.inbox[%d]", n)
		if d.failedBelow(path) {
			continue
		}
		destination, known := c.Destinations[i.Destination]
		switch {
		case !known:
			d.wrong(path, fmt.Sprintf("%s: there is no destination %q", path, shorten(i.Destination)),
				DidYouMean(i.Destination, c.Names()))
		case !orTrue(destination.Ledger):
			d.wrong(path, path+": the destination "+i.Destination+" keeps no ledger, so nobody knows what it has published",
				"take ledger: false out")
		}
		after := time.Duration(i.After)
		if after == 0 {
			after = ops.DefaultAfter
		}
		if i.Keeps != 0 && time.Duration(i.Keeps) <= after {
			d.wrong(path, path+": keeps is not longer than after, so nothing would be asked for",
				"say how long the consumer keeps its inbox")
		}
		d.checkDatabaseAt(path+".database", i.Database)
	}
}
