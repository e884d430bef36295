package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/pillarbox-dev/pillarbox/outbox/schema"
)

// MinVersion is the oldest PostgreSQL that the statements run on: multiranges came with 14.
const MinVersion = 14

const (
	serverSQL = `
select current_setting('server_version_num')::integer / 10000, current_setting('server_version'), pg_is_in_recovery()`

	// rightsSQL lists the rights that are missing, on what exists. $1 is the schema.
	rightsSQL = `
select right_name || ' on ' || format('%I.%I', n.nspname, c.relname)
  from (values ('outbox_event', 'SELECT'), ('outbox_event_seq', 'SELECT'),
               ('outbox_cursor', 'SELECT'), ('outbox_cursor', 'INSERT'), ('outbox_cursor', 'UPDATE'),
               ('outbox_delivery', 'SELECT'), ('outbox_delivery', 'INSERT'), ('outbox_delivery', 'UPDATE'))
       as needed (relation, right_name)
  join pg_catalog.pg_namespace n on n.nspname = $1
  join pg_catalog.pg_class c on c.relnamespace = n.oid and c.relname = needed.relation
 where not case c.relkind when 'S' then has_sequence_privilege(c.oid, right_name)
                          else has_table_privilege(c.oid, right_name) end
union all
select 'USAGE on schema ' || format('%I', nspname)
  from pg_catalog.pg_namespace
 where nspname = $1 and not has_schema_privilege(oid, 'USAGE')`

	// logSQL tells whether the log is such as the cursor needs it, for each way in which it may not be. $1 is the schema.
	logSQL = `
select coalesce((select s.seqcache <> 1 or s.seqincrement <> 1 or s.seqcycle
                   from pg_catalog.pg_sequence s
                   join pg_catalog.pg_class c on c.oid = s.seqrelid
                   join pg_catalog.pg_namespace n on n.oid = c.relnamespace
                  where n.nspname = $1 and c.relname = 'outbox_event_seq'), false),
       coalesce((select d.adbin is null -- no default: identity numbers come before the xid, and from another sequence
                   or pg_get_expr(d.adbin, d.adrelid) not like '%pg_current_xact_id()%nextval%'
                  and pg_get_expr(d.adbin, d.adrelid) not like '%nextval(%CASE%pg_current_xact_id()%'
                   from pg_catalog.pg_attribute a
                   join pg_catalog.pg_class c on c.oid = a.attrelid
                   join pg_catalog.pg_namespace n on n.oid = c.relnamespace
                   left join pg_catalog.pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum
                  where n.nspname = $1 and c.relname = 'outbox_event' and a.attname = 'seq'), false)`
)

// Check tells whether the store can work: the database is there and is no standby, the tables are migrated and as the cursor
// needs them, the user has the rights. It changes nothing and returns every problem it finds, each with a hint what to do.
func (s *Store) Check(ctx context.Context) []error {
	var version int
	var name string
	var standby bool
	if err := s.pool.QueryRow(ctx, serverSQL).Scan(&version, &name, &standby); err != nil {
		return []error{s.failed("connect", err)}
	}
	var problems []error
	bad := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf("postgres: "+format, args...))
	}
	if version < MinVersion {
		bad("the server is PostgreSQL %s: upgrade it to %d or later", name, MinVersion)
	}
	if standby {
		bad("the server is a standby: connect to the primary (target_session_attrs=read-write finds it among several hosts)")
	}
	problems = append(problems, s.checkTables(ctx)...)
	problems = append(problems, s.checkRights(ctx)...)
	return append(problems, s.checkLog(ctx)...)
}

func (s *Store) checkTables(ctx context.Context) []error {
	db := stdlib.OpenDBFromPool(s.pool)
	defer db.Close() // the pool stays open
	err := schema.Check(ctx, db, schema.Postgres, s.schema)
	if err == nil || errors.Is(err, schema.ErrNewer) { // migrations take nothing away
		return nil
	}
	return []error{fmt.Errorf("postgres: %w", err)}
}

func (s *Store) checkRights(ctx context.Context) []error {
	rows, err := s.pool.Query(ctx, rightsSQL, s.schema)
	if err != nil {
		return []error{s.failed("look at the user's rights", err)}
	}
	missing, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return []error{s.failed("look at the user's rights", err)}
	}
	if len(missing) == 0 {
		return nil
	}
	return []error{fmt.Errorf("postgres: the user has no %s: grant what `pillarbox migrate --print-roles` prints for the relay",
		strings.Join(missing, ", no "))}
}

func (s *Store) checkLog(ctx context.Context) []error {
	var numbers, xid bool
	if err := s.pool.QueryRow(ctx, logSQL, s.schema).Scan(&numbers, &xid); err != nil {
		return []error{s.failed("look at the log", err)}
	}
	var problems []error
	sequence := pgx.Identifier{s.schema, "outbox_event_seq"}.Sanitize()
	if numbers {
		problems = append(problems, fmt.Errorf("postgres: the log's numbers may skip or repeat, which would lose events: "+
			"alter sequence %s increment by 1 cache 1 no cycle", sequence))
	}
	if xid {
		problems = append(problems, fmt.Errorf("postgres: the default of outbox_event.seq was changed, so that a transaction "+
			"may take a number before its xid, which would lose events: alter table %s alter seq set default "+
			"nextval(case when pg_current_xact_id() is not null then '%s'::regclass end)",
			pgx.Identifier{s.schema, "outbox_event"}.Sanitize(), sequence))
	}
	return problems
}
