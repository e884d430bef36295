package http

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/pillarbox-dev/pillarbox/outbox/schema"
)

// Table keeps the endpoints of the table outbox_endpoint, or of anything else that can be loaded whole, in memory. Make
// it with NewTable, run Run beside the relay.
type Table struct {
	config TableConfig
	known  atomic.Pointer[map[string]Endpoint]

	loading chan struct{} // holds a value while somebody loads; guards what follows
	loaded  time.Time
	err     error
}

// TableConfig is what a Table is made of.
type TableConfig struct {
	// Load returns all endpoints by name, in a map that is the Table's from then on. Required. See LoadTable.
	Load func(context.Context) (map[string]Endpoint, error)
	// Every is the time between two loads. Default 10 s.
	Every time.Duration
	// CredentialFolder is where the files of the endpoints lie. Their names are relative to it, and neither .. nor
	// a link leads out of it: who may write the table must not be able to have any file of this machine sent to
	// an address of their choice. Without it an endpoint cannot name files.
	CredentialFolder string
	// Now is the clock. Default time.Now.
	Now func() time.Time
}

// reloadAfter is the least time between two loads for names that are not known.
const reloadAfter = time.Second

// NewTable returns a Table that knows no endpoint yet.
func NewTable(c TableConfig) *Table {
	if c.Every <= 0 {
		c.Every = 10 * time.Second
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Table{config: c, loading: make(chan struct{}, 1)}
}

// Run loads the endpoints now and every Config.Every until the context ends. A load that fails is reported and changes
// nothing: what was known stays.
func (t *Table) Run(ctx context.Context, report func(error)) {
	ticker := time.NewTicker(t.config.Every)
	defer ticker.Stop()
	for {
		if err := t.load(ctx, 0); err != nil && ctx.Err() == nil {
			report(err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// Refresh loads the endpoints, unless that was tried within the last second. It returns the error of the latest try. The
// destination calls it when an event names an endpoint that is not known: it may have been added with that very event.
func (t *Table) Refresh(ctx context.Context) error { return t.load(ctx, reloadAfter) }

func (t *Table) load(ctx context.Context, unlessWithin time.Duration) error {
	select {
	case t.loading <- struct{}{}:
		defer func() { <-t.loading }()
	case <-ctx.Done():
		return ctx.Err()
	}
	now := t.config.Now()
	if unlessWithin > 0 && !t.loaded.IsZero() && now.Sub(t.loaded) < unlessWithin {
		return t.err
	}
	known, err := t.config.Load(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err() // the caller's time was up: that says nothing to the next one
		}
		t.loaded, t.err = now, fmt.Errorf("load the endpoints: %w", err)
		return t.err
	}
	for name, e := range known {
		e.folder, e.within = t.config.CredentialFolder, true
		known[name] = e.prepared()
	}
	t.known.Store(&known)
	t.loaded, t.err = now, nil
	return nil
}

// Lookup implements Endpoints.
func (t *Table) Lookup(name string) (Endpoint, bool) {
	if known := t.known.Load(); known != nil {
		e, ok := (*known)[name]
		return e, ok
	}
	return Endpoint{}, false
}

// Names returns the names that are known, in order.
func (t *Table) Names() []string {
	known := t.known.Load()
	if known == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(*known))
}

// ---- The table outbox_endpoint -----------------------------------------------------------------------------------

const selectEndpoints = `select endpoint, url, coalesce(secret_file, ''), coalesce(token_file, ''),
       coalesce(max_in_flight, 0), enabled
  from %s where destination = %s`

// PostgresEndpoints is the query for LoadTable where the tables live in a PostgreSQL schema.
func PostgresEndpoints(schemaName string) string {
	return fmt.Sprintf(selectEndpoints, schema.Quote(schemaName)+".outbox_endpoint", "$1")
}

// SQLiteEndpoints is the query for LoadTable in SQLite.
func SQLiteEndpoints() string { return fmt.Sprintf(selectEndpoints, "outbox_endpoint", "?") }

// Rows is what both pgx.Rows and *sql.Rows are.
type Rows interface {
	Next() bool
	Scan(dest ...any) error
	Err() error
}

// LoadTable returns a TableConfig.Load for a destination's rows of outbox_endpoint, through whatever driver the store
// has: a pgx pool's Query with PostgresEndpoints, or a sql.DB's QueryContext with either. The column secret_file may name
// two files during a rotation, with a comma between.
func LoadTable[R Rows](
	query func(ctx context.Context, sql string, args ...any) (R, error), sql, destination string,
) func(context.Context) (map[string]Endpoint, error) {
	return func(ctx context.Context) (map[string]Endpoint, error) {
		rows, err := query(ctx, sql, destination)
		if err != nil {
			return nil, fmt.Errorf("query outbox_endpoint: %w", err)
		}
		endpoints, err := scanEndpoints(rows)
		if err != nil {
			return nil, fmt.Errorf("read outbox_endpoint: %w", errors.Join(err, closeRows(rows)))
		}
		return endpoints, nil
	}
}

func scanEndpoints(rows Rows) (map[string]Endpoint, error) {
	endpoints := map[string]Endpoint{}
	for rows.Next() {
		var e Endpoint
		var name, secrets string
		var enabled bool
		if err := rows.Scan(&name, &e.URL, &secrets, &e.TokenFile, &e.MaxInFlight, &enabled); err != nil {
			return nil, err
		}
		e.Disabled = !enabled
		for file := range strings.SplitSeq(secrets, ",") {
			if file = strings.TrimSpace(file); file != "" {
				e.SecretFiles = append(e.SecretFiles, file)
			}
		}
		endpoints[name] = e
	}
	return endpoints, rows.Err()
}

// closeRows ends a result that was not read to its end; at its end both drivers close it by themselves.
func closeRows(rows Rows) error {
	switch rows := rows.(type) {
	case interface{ Close() error }:
		return rows.Close()
	case interface{ Close() }:
		rows.Close()
	}
	return nil
}
