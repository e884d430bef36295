package inbox

import (
	"fmt"

	"github.com/pillarbox-dev/pillarbox/outbox"
	"github.com/pillarbox-dev/pillarbox/outbox/internal/txn"
)

// PostgreSQL's part is in functions, so that one round trip does it and the wait is bounded: see 0003_consumer.sql and
// 0006_inbox_duplicates.sql. %s is a table or a function with its schema. In SQLite `cross join` keeps the batch in the outer
// loop.
const (
	postgresFirst = `select id, verdict from %s($1, $2, $3)`
	postgresGuard = `select %s($1, $2, $3, $4, $5, $6)`
	postgresPrune = `with old as (
  select consumer, event_id from %[1]s where %[2]s < clock_timestamp() - $1 * interval '1 second'
   order by %[2]s limit $2 for update skip locked),
gone as (delete from %[1]s i using old where i.consumer = old.consumer and i.event_id = old.event_id returning 1)
select count(*)::text from gone`

	sqliteFirst = `insert into outbox_inbox (consumer, event_id, body_hash)
select ?1, value ->> 0, value ->> 1 from json_each(?2) where true
on conflict do nothing returning event_id, 'FIRST'`
	sqliteSeen = `select i.event_id, case when i.body_hash = value ->> 1 then 'DUPLICATE' else 'DIFFERENT' end
  from json_each(?2) cross join outbox_inbox i on i.consumer = ?1 and i.event_id = value ->> 0`
	sqliteCount = `insert into outbox_inbox_duplicate (consumer, event_id, times)
select ?1, value, count(*) from json_each(?2) where true group by value
on conflict do update set times = times + excluded.times, last_at = excluded.last_at returning ''`
	sqliteGuard = `insert into outbox_inbox_version (consumer, aggregate_type, aggregate_id, version)
select ?1, ?2, ?3, ?4
 where ?5 or ?4 = 1 or exists (select 1 from outbox_inbox_version
                                where consumer = ?1 and aggregate_type = ?2 and aggregate_id = ?3)
on conflict do update set version = excluded.version,
  updated_at = cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000
 where outbox_inbox_version.version = excluded.version - 1 or ?5 and outbox_inbox_version.version < excluded.version
returning 'APPLY'`
	sqliteVerdict = `select case when coalesce(max(version), 0) >= ?4 then 'STALE' else 'GAP' end
  from outbox_inbox_version where consumer = ?1 and aggregate_type = ?2 and aggregate_id = ?3`
	sqlitePrune = `delete from %[1]s where (consumer, event_id) in (
  select consumer, event_id from %[1]s
   where %[2]s < (cast(round((julianday('now') - 2440587.5) * 86400000) as integer) - ?1 * 1000) * 1000
   order by %[2]s limit ?2) returning ''`
)

// statements are the texts of one inbox. They never change.
type statements struct {
	first, guard string
	prune        [2]string // the records, and the counts
}

func newStatements(d outbox.Dialect, schemaName string) *statements {
	table := func(name string) string { return txn.Table(d, schemaName, name) }
	s, prune := &statements{first: sqliteFirst, guard: sqliteGuard}, sqlitePrune
	if d == outbox.Postgres {
		s.first = fmt.Sprintf(postgresFirst, table("outbox_inbox_first"))
		s.guard = fmt.Sprintf(postgresGuard, table("outbox_inbox_guard"))
		prune = postgresPrune
	}
	s.prune = [2]string{
		fmt.Sprintf(prune, table("outbox_inbox"), "handled_at"), fmt.Sprintf(prune, table("outbox_inbox_duplicate"), "last_at"),
	}
	return s
}
