package wire

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/pillarbox-dev/pillarbox/internal/config"
	"github.com/pillarbox-dev/pillarbox/ops"
	"github.com/pillarbox-dev/pillarbox/relay"
)

// checkTimeout bounds the look at one part.
const checkTimeout = 15 * time.Second

// Finding is what a check of one part has found.
type Finding struct {
	// Part is "database", "contracts", "dashboard" or "destination NAME".
	Part string
	// About says what was looked at.
	About string
	// Problems are what is wrong, each with a hint; none: it works.
	Problems []error
	// Advice is what should be done although it works, one sentence each.
	Advice []string
}

// Check connects to everything that a configuration names. Nothing is delivered and nothing is changed. What hangs on a part that
// does not work is looked at as far as it goes, so that all problems come at once.
func Check(ctx context.Context, c *config.Config) []Finding {
	db, database := checkDatabase(ctx, c)
	if db != nil {
		defer db.Close()
	}
	names := c.Names()
	destinations := make([]Finding, len(names))
	var checking sync.WaitGroup
	for i, name := range names {
		checking.Go(func() { destinations[i] = checkDestination(ctx, c, name, db) })
	}
	checking.Wait()
	findings := []Finding{database}
	if c.Contracts.Dir != "" {
		findings = append(findings, checkContracts(c.Contracts))
	}
	if c.ServesDashboard() {
		findings = append(findings, checkAccess(c))
	}
	findings = append(findings, checkReconcile(ctx, c, db)...)
	return append(findings, destinations...)
}

func checkContracts(c config.Contracts) Finding {
	f := Finding{Part: "contracts", About: c.Dir}
	if _, err := loadContracts(c); err != nil {
		f.Problems = config.Each(err)
	}
	return f
}

// checkDatabase opens the database as run would. The pool that it returns is nil when there is no connection.
func checkDatabase(ctx context.Context, c *config.Config) (*sql.DB, Finding) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	f := Finding{Part: "database", About: c.Database.URL.String()}
	if name := c.Database.SchemaName(); name != "" {
		f.About += ", schema " + name
	}
	_, closeStore, err := OpenStore(ctx, c.RelayDatabase())
	if err != nil {
		f.Problems = config.Each(err)
	} else {
		closeStore()
	}
	db, err := OpenDB(ctx, c.Database, false)
	if err != nil {
		if len(f.Problems) == 0 {
			f.Problems = config.Each(err)
		}
		return nil, f
	}
	if len(f.Problems) == 0 {
		if f.Advice, err = checkTables(ctx, c, db); err != nil {
			f.Problems = config.Each(err)
		}
	}
	if advice := c.TooFewConnections(); advice != "" {
		f.Advice = append(f.Advice, advice)
	}
	return db, f
}

// checkTables tries what /metrics and status need, asks the database for its health, and compares the numbers of shards.
func checkTables(ctx context.Context, c *config.Config, db *sql.DB) (advice []string, err error) {
	o, err := ops.New(db, c.Database.Dialect(), c.Database.SchemaName())
	if err != nil {
		return nil, err
	}
	status, err := o.Status(ctx)
	if err != nil {
		return nil, err
	}
	health, err := o.Health(ctx)
	return health.Advice, errors.Join(err, checkShards(c, status))
}

// checkShards finds the destinations that have another number of shards in the database, for which no relay would work.
func checkShards(c *config.Config, status ops.Status) error {
	var problems []error
	for _, d := range status.Destinations {
		configured, known := c.Destinations[d.Destination]
		if is := max(1, len(d.Shards)); known && is != configured.ShardCount() {
			problems = append(problems, fmt.Errorf("the number of shards of %s is %d in the database and %d in the configuration: set "+
				"the configuration back, or stop the relays and run 'pillarbox reshard %s --reason …'",
				d.Destination, is, configured.ShardCount(), d.Destination))
		}
	}
	return errors.Join(problems...)
}

func checkDestination(ctx context.Context, c *config.Config, name string, db *sql.DB) Finding {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	f := Finding{Part: "destination " + name}
	if h := c.Destinations[name].HTTP; h != nil {
		f.About = aboutHTTP(h)
		if h.EndpointTable && db == nil {
			f.Problems = []error{errors.New("its endpoints are in the database, which is not there: mend that first")}
			return f
		}
	}
	if k := c.Destinations[name].Kafka; k != nil {
		f.About = "kafka, " + strings.Join(k.Brokers, ", ")
	}
	made, err := newTarget(c, name, db, nil)
	if err != nil {
		f.Problems = config.Each(err)
		return f
	}
	defer made.close()
	if checker, ok := made.Destination.(relay.Checker); ok {
		f.Problems = checker.Check(ctx)
	}
	return f
}

func aboutHTTP(h *config.HTTP) string {
	switch {
	case h.EndpointTable:
		return "http, endpoints in the table outbox_endpoint"
	case len(h.Endpoints) > 0:
		return fmt.Sprintf("http, %d endpoints", len(h.Endpoints))
	}
	return "http, " + h.URL.String()
}
