package idempotency

import (
	"fmt"

	"github.com/pillarbox-dev/pillarbox/outbox"
	"github.com/pillarbox-dev/pillarbox/outbox/internal/txn"
)

// PostgreSQL's claim is a function, so that one round trip does it and the wait is bounded: see 0003_consumer.sql. %s is a table
// or a function with its schema.
const (
	postgresClaim = `select verdict, first_status, first_headers, first_body from %s($1, $2, $3, $4, $5)`
	postgresStore = `update %s set status = $3, headers = $4, body = $5 where operation = $1 and key = $2 returning key`
	postgresPrune = `with old as (
  select operation, key from %[1]s where expires_at < clock_timestamp()
   order by expires_at limit $1 for update skip locked),
gone as (delete from %[1]s i using old where i.operation = old.operation and i.key = old.key returning 1)
select count(*)::text from gone`

	sqliteNow   = `cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000`
	sqliteClaim = `insert into outbox_idempotency as known (operation, key, fingerprint, expires_at)
values (?1, ?2, ?3, ` + sqliteNow + ` + ?4 * 1000)
on conflict (operation, key) do update
   set fingerprint = excluded.fingerprint, status = null, headers = '{}', body = null, created_at = excluded.created_at,
       expires_at = excluded.expires_at
 where known.expires_at <= ` + sqliteNow + ` or known.status is null
returning 'FIRST', null, null, null`
	sqliteStored = `select case when fingerprint = ?3 then 'REPLAY' else 'DIFFERENT' end, status, headers, body
  from outbox_idempotency where operation = ?1 and key = ?2`
	sqliteStore = `update outbox_idempotency set status = ?3, headers = ?4, body = ?5
 where operation = ?1 and key = ?2 returning key`
	sqlitePrune = `delete from outbox_idempotency where rowid in (
  select rowid from outbox_idempotency where expires_at < ` + sqliteNow + ` order by expires_at limit ?1) returning ''`
)

// statements are the texts of one keeper. They never change.
type statements struct{ claim, store, prune string }

func newStatements(d outbox.Dialect, schemaName string) statements {
	if d == outbox.SQLite {
		return statements{sqliteClaim, sqliteStore, sqlitePrune}
	}
	table := txn.Table(d, schemaName, "outbox_idempotency")
	return statements{
		claim: fmt.Sprintf(postgresClaim, txn.Table(d, schemaName, "outbox_idempotency_claim")),
		store: fmt.Sprintf(postgresStore, table),
		prune: fmt.Sprintf(postgresPrune, table),
	}
}
