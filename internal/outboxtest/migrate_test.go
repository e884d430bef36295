package outboxtest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/pillarbox-dev/pillarbox/internal/pgtest"
	"github.com/pillarbox-dev/pillarbox/outbox/schema"
)

// oddSchema needs every kind of quoting there is.
const oddSchema = `Integration "q" 'l' $outbox$ \ ü; drop`

func TestMigratePostgres(t *testing.T) {
	for _, name := range []string{"public", "integration", oddSchema, strings.Repeat("x", 63)} {
		t.Run(name, func(t *testing.T) {
			db := openPostgres(t, pgtest.Database(t))
			testMigrate(t, db, schema.Postgres, name)
			var homeless int
			query(t, db, &homeless, `select count(*) from pg_class c join pg_namespace n on n.oid = c.relnamespace
				where relname like 'outbox%' and nspname <> $1`, name)
			if homeless != 0 {
				t.Errorf("%d objects ended outside schema %q", homeless, name)
			}
		})
	}
}

func TestMigrateSQLite(t *testing.T) {
	testMigrate(t, openSQLite(t, filepath.Join(t.TempDir(), "db")), schema.SQLite, "")
}

func testMigrate(t *testing.T, db *sql.DB, d schema.Dialect, name string) {
	t.Helper()
	ctx := t.Context()
	known, err := schema.Migrations(d)
	if err != nil {
		t.Fatal(err)
	}

	err = schema.Check(ctx, db, d, name)
	if !errors.Is(err, schema.ErrPending) || !strings.Contains(err.Error(), "pillarbox migrate") {
		t.Errorf("Check of an empty database: got %v, want ErrPending with a hint", err)
	}
	if missing, err := schema.Pending(ctx, db, d, name); err != nil || !slices.Equal(missing, known) {
		t.Errorf("Pending of an empty database: got %v, %v; want %v", missing, err, known)
	}

	if applied, err := schema.Migrate(ctx, db, d, name); err != nil || !slices.Equal(applied, known) {
		t.Fatalf("first Migrate: got %v, %v; want %v", applied, err, known)
	}
	if applied, err := schema.Migrate(ctx, db, d, name); err != nil || len(applied) != 0 {
		t.Errorf("second Migrate: got %v, %v; want nothing", applied, err)
	}
	if err := schema.Check(ctx, db, d, name); err != nil {
		t.Errorf("Check after Migrate: %v", err)
	}

	// What was applied once may be applied again: as if its record were lost.
	table := qualified(d, name, "outbox_migration")
	run(t, db, "delete from "+table+" where version = 1")
	conn, err := db.Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if applied, err := schema.Migrate(ctx, conn, d, name); err != nil || !slices.Equal(applied, known[:1]) {
		t.Errorf("Migrate without the record of 1: got %v, %v; want %v", applied, err, known[:1])
	}

	run(t, db, fmt.Sprintf("insert into %s (version) values (%d)", table, len(known)+7))
	_, migrateErr := schema.Migrate(ctx, db, d, name)
	for what, err := range map[string]error{"Check": schema.Check(ctx, db, d, name), "Migrate": migrateErr} {
		if !errors.Is(err, schema.ErrNewer) || !strings.Contains(err.Error(), fmt.Sprintf("version %d", len(known)+7)) {
			t.Errorf("%s of a newer database: got %v, want ErrNewer with the version", what, err)
		}
	}
}

func TestMigrateTenAtOnce(t *testing.T) {
	url, file := pgtest.Database(t), filepath.Join(t.TempDir(), "db")
	for _, c := range []struct {
		d    schema.Dialect
		open func() *sql.DB
	}{
		{schema.Postgres, func() *sql.DB {
			// A default of REPEATABLE READ would hide from those that waited what the first has done.
			return openPostgres(t, url+"&default_transaction_isolation=repeatable%20read")
		}},
		{schema.SQLite, func() *sql.DB { return open(t, "sqlite", "file:"+file) }}, // without a busy timeout
	} {
		t.Run(c.d.String(), func(t *testing.T) {
			name := ""
			if c.d == schema.Postgres {
				name = oddSchema
			}
			var wg sync.WaitGroup
			var mu sync.Mutex
			applied := 0
			for range 10 {
				db := c.open() // each like a process of its own
				wg.Go(func() {
					done, err := schema.Migrate(t.Context(), db, c.d, name)
					if err != nil {
						t.Error(err)
					}
					mu.Lock()
					defer mu.Unlock()
					applied += len(done)
				})
			}
			wg.Wait()
			if known, _ := schema.Migrations(c.d); applied != len(known) {
				t.Errorf("%d migrations were applied by all together, want each of %d once", applied, len(known))
			}
		})
	}
}

// TestMigrateSQLiteWaitsForReaders: without WAL a reader that is not done yet keeps a writer from committing.
func TestMigrateSQLiteWaitsForReaders(t *testing.T) {
	dsn := "file:" + filepath.Join(t.TempDir(), "db")
	db, other := open(t, "sqlite", dsn), open(t, "sqlite", dsn)
	run(t, db, "create table business (x integer)")
	reader := beginSQL(t, other)
	must(t, reader.exec("select * from business"))
	done := make(chan error)
	go func() {
		_, err := schema.Migrate(t.Context(), db, schema.SQLite, "")
		done <- err
	}()
	select {
	case err := <-done:
		t.Fatalf("Migrate did not wait for the reader: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	must(t, reader.Rollback())
	must(t, <-done)
	must(t, schema.Check(t.Context(), db, schema.SQLite, ""))
}

// TestPrintEqualsMigrate applies what Print gives through psql, twice, and compares all definitions with those of Migrate's work.
func TestPrintEqualsMigrate(t *testing.T) {
	migrated, printed := pgtest.Database(t), pgtest.Database(t)
	db := openPostgres(t, migrated)
	if _, err := schema.Migrate(t.Context(), db, schema.Postgres, oddSchema); err != nil {
		t.Fatal(err)
	}
	text, err := schema.Print(schema.Postgres, oddSchema)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		psql(t, printed, text)
	}
	if err := schema.Check(t.Context(), openPostgres(t, printed), schema.Postgres, oddSchema); err != nil {
		t.Error(err)
	}
	got, want := list(t, openPostgres(t, printed), definitions), list(t, db, definitions)
	if len(want) < 150 {
		t.Fatalf("only %d definitions were found:\n%s", len(want), strings.Join(want, "\n"))
	}
	if !slices.Equal(got, want) {
		in := func(all []string) func(string) bool { return func(d string) bool { return slices.Contains(all, d) } }
		t.Errorf("only Print gives:\n%s\nonly Migrate gives:\n%s", strings.Join(slices.DeleteFunc(slices.Clone(got), in(want)), "\n"),
			strings.Join(slices.DeleteFunc(slices.Clone(want), in(got)), "\n"))
	}
}

func TestPrintSQLite(t *testing.T) {
	db := openSQLite(t, filepath.Join(t.TempDir(), "db"))
	text, err := schema.Print(schema.SQLite, "")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		run(t, db, text)
	}
	if err := schema.Check(t.Context(), db, schema.SQLite, ""); err != nil {
		t.Error(err)
	}
}

// TestSameColumns compares the tables and columns of the two databases. Shards are PostgreSQL's alone.
func TestSameColumns(t *testing.T) {
	pg, lite := openPostgres(t, pgtest.Database(t)), openSQLite(t, filepath.Join(t.TempDir(), "db"))
	migrate(t, pg, schema.Postgres, "public")
	migrate(t, lite, schema.SQLite, "")
	want := list(t, pg, `select table_name || '.' || column_name from information_schema.columns
		where table_schema = 'public' and table_name like 'outbox%' and column_name <> 'shards'
		order by table_name collate "C", ordinal_position`)
	got := list(t, lite, `select m.name || '.' || c.name from sqlite_master m join pragma_table_info(m.name) c
		where m.type in ('table', 'view') and m.name like 'outbox%' order by m.name, c.cid`)
	if !slices.Equal(got, want) {
		t.Errorf("columns in SQLite:\n%v\nin PostgreSQL:\n%v", got, want)
	}
	if len(want) < 50 {
		t.Errorf("only %d columns were compared", len(want))
	}
}

// TestMigrateNeedsNoRightsOnTheDatabase: an owner made the schema; the migrating user may create in it, and nothing more.
func TestMigrateNeedsNoRightsOnTheDatabase(t *testing.T) {
	url := pgtest.Database(t)
	db := openPostgres(t, url)
	owner := newRole(t, db, "migrator")
	run(t, db, "create schema ready; grant usage, create on schema ready to "+schema.Quote(owner))
	migrator := openPostgres(t, as(url, owner))
	if _, err := schema.Migrate(t.Context(), migrator, schema.Postgres, "missing"); err == nil ||
		!strings.Contains(err.Error(), "CREATE on the database") {
		t.Errorf("Migrate into a schema it cannot make: got %v, want a hint", err)
	}
	migrate(t, migrator, schema.Postgres, "ready")
	text, err := schema.Print(schema.Postgres, "ready")
	if err != nil {
		t.Fatal(err)
	}
	psql(t, as(url, owner), text)
}

// TestMigrateIgnoresWhatIsInTheWay: a temporary table of the session, and tables of another schema, carry our names.
func TestMigrateIgnoresWhatIsInTheWay(t *testing.T) {
	db := openPostgres(t, pgtest.Database(t))
	migrate(t, db, schema.Postgres, "public")
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(t.Context(),
		"create temp table outbox_event (x int); create temp table outbox_migration (x int)"); err != nil {
		t.Fatal(err)
	}
	if _, err := schema.Migrate(t.Context(), conn, schema.Postgres, "other"); err != nil {
		t.Fatal(err)
	}
	if err := schema.Check(t.Context(), conn, schema.Postgres, "other"); err != nil {
		t.Error(err)
	}
	// The search path was the transaction's alone.
	var path string
	if err := conn.QueryRowContext(t.Context(), "show search_path").Scan(&path); err != nil || !strings.Contains(path, "public") {
		t.Errorf("search_path after Migrate: %q, %v", path, err)
	}
}

// TestMigrateFailsWhole: a migration that breaks leaves nothing behind.
func TestMigrateFailsWhole(t *testing.T) {
	for _, c := range []struct {
		d    schema.Dialect
		name string
		db   *sql.DB
	}{
		{schema.Postgres, "public", openPostgres(t, pgtest.Database(t))},
		{schema.SQLite, "", openSQLite(t, filepath.Join(t.TempDir(), "db"))},
	} {
		t.Run(c.d.String(), func(t *testing.T) {
			run(t, c.db, "create table outbox_delivery (wrong integer)") // 0001 makes the log and then stumbles over it
			_, err := schema.Migrate(t.Context(), c.db, c.d, c.name)
			if err == nil || !strings.Contains(err.Error(), "0001_outbox") {
				t.Fatalf("got %v, want an error that names the migration", err)
			}
			if _, err := c.db.ExecContext(t.Context(), "select 1 from outbox_event"); err == nil {
				t.Error("the log was left behind")
			}
			run(t, c.db, "drop table outbox_delivery")
			migrate(t, c.db, c.d, c.name)
		})
	}
}

func TestMigrateRefusesBadNames(t *testing.T) {
	pg, lite := openPostgres(t, pgtest.Database(t)), openSQLite(t, filepath.Join(t.TempDir(), "db"))
	for _, c := range []struct {
		db   *sql.DB
		d    schema.Dialect
		name string
		want string
	}{
		{pg, schema.Postgres, "", "empty"},
		{pg, schema.Postgres, strings.Repeat("x", 64), "64 bytes"},
		{pg, schema.Postgres, strings.Repeat("ü", 32), "64 bytes"},
		{pg, schema.Postgres, "a\x00b", "NUL"},
		{pg, schema.Postgres, "a\xff", "UTF-8"},
		{pg, schema.Postgres, "pg_mine", "pg_"},
		{lite, schema.SQLite, "integration", "no schemas"},
		{pg, 0, "public", "schema.Postgres or schema.SQLite"},
	} {
		if _, err := schema.Migrate(t.Context(), c.db, c.d, c.name); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("schema %q in %v: got %v, want an error with %q", c.name, c.d, err, c.want)
		}
	}
}

// psql feeds a script to the real client, which stops at the first error.
func psql(t *testing.T, url, script string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "psql", "-X", "-q", "-At", "-v", "ON_ERROR_STOP=1", "-d", url)
	cmd.Stdin = strings.NewReader(script)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("psql: %v\n%s", err, out)
	}
}

// definitions is everything in the schemas of users, in the server's own words.
const definitions = `
select 'schema ' || nspname from pg_namespace where nspname !~ '^pg_|^information_schema$'
union all
select format('column %s %s %s %s null:%s default:%s identity:%s', c.oid::regclass, a.attnum, a.attname,
         format_type(a.atttypid, a.atttypmod), not a.attnotnull, pg_get_expr(d.adbin, d.adrelid), a.attidentity)
  from pg_attribute a join pg_class c on c.oid = a.attrelid left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum
 where c.relname ~ '^outbox' and c.relkind in ('r', 'v') and a.attnum > 0
union all
select format('class %s %s options:%s', c.oid::regclass, c.relkind, c.reloptions) from pg_class c where c.relname ~ '^outbox'
union all
select format('sequence %s %s', seqrelid::regclass, (seqtypid::regtype, seqstart, seqincrement, seqmin, seqmax, seqcache, seqcycle))
  from pg_sequence
union all
select format('constraint %s %s %s', conrelid::regclass, conname, pg_get_constraintdef(oid))
  from pg_constraint where conrelid > 16384
union all
select format('index %s', pg_get_indexdef(indexrelid)) from pg_index where indrelid::regclass::text ~ 'outbox'
union all
select format('view %s %s', oid::regclass, pg_get_viewdef(oid)) from pg_class where relname ~ '^outbox' and relkind = 'v'
union all
select format('function %s', pg_get_functiondef(oid)) from pg_proc where proname ~ '^outbox'
union all
select format('trigger %s', pg_get_triggerdef(oid)) from pg_trigger where not tgisinternal
order by 1`

// TestMigrateLetsProducersPass: a migration of tables in use waits for a transaction that holds one, and whoever comes after waits
// for the migration. So it gives up soon, and the service goes on while that transaction stays open.
func TestMigrateLetsProducersPass(t *testing.T) {
	url := pgtest.Database(t)
	b := onPostgres(t, url)
	run(t, b.db, "delete from "+b.table("outbox_migration")+" where version = 5")
	long := beginSQL(t, b.db)
	enqueue(t, b, long, event("long"))
	migrated := make(chan error, 1)
	go func() {
		_, err := schema.Migrate(context.WithoutCancel(t.Context()), b.db, schema.Postgres, oddSchema)
		migrated <- err
	}()
	for waits := false; !waits; {
		query(t, b.db, &waits, "select exists (select from pg_locks where not granted and relation = $1::regclass)", b.table("outbox_cursor"))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	short := beginSQL(t, b.db)
	if _, err := b.box.Enqueue(ctx, short.Tx, event("short")); err != nil {
		t.Errorf("a producer beside the migration: %v", err)
		must(t, long.Rollback())
	}
	if err := <-migrated; err == nil || !strings.Contains(err.Error(), "run it again") {
		t.Errorf("the migration: got %v, want it to say what to do", err)
	}
	_, _ = long.Rollback(), short.Rollback()
	migrate(t, b.db, schema.Postgres, oddSchema)
}
